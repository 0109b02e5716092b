// What a ds_config leaves out: DeepSpeed's defaults where they are not ours, and what it has no key for.
#include "deepspeed/deepspeed_table.hpp"
#include "deepspeed/deepspeed_translation.hpp"

namespace strata::config {

void DeepSpeedTranslation::emit_default(const std::string& path, const Node& row) {
  const std::string top = first_part(path), target = expand(text_at(row, "to"));
  if ((top == "optimizer" || top == "scheduler") && file_.given(top) == nullptr) return;
  if (target.empty() || !exists(target)) return;
  const Place& place = file_.root().place;
  if (row.get("required") != nullptr)
    throw UserError(file_.given(top)->place,
                    path + " must be given: " + chosen_["learning_rate"] + " has no default for it");
  std::string value = text_at(row, "default");
  if (const Node* with = row.get("default_with"))
    for (const auto& [slot, chosen] : chosen_)
      if (const Node* its = with->get(chosen)) value = its->text;
  const Node* moved = deepspeed_table("moved").get(path);
  const std::string compat = chosen_["version"];
  if (moved != nullptr && is_older(compat, text_at(*moved, "before"))) value = text_at(*moved, "default");
  if (value.empty() || find(tree, target) != nullptr) return;
  Node source = scalar_node(value);
  source.place = place;
  source.origin = "DeepSpeed" + (moved != nullptr ? " " + compat : "") + "'s default of";
  const DeepSpeedKey key{path, place, &source, &row};
  const std::string text = put_from(key, target, source);
  if (moved != nullptr) report.lines.push_back({"deepspeed_compat " + compat, path, "left out", text});
  also(key);
}

void DeepSpeedTranslation::fill() {
  for (const Entry& entry : deepspeed_table("fill").entries) {
    const std::string without = text_at(entry.value, "without"), unless = text_at(entry.value, "unless_given");
    if (find(tree, entry.key) != nullptr || set(entry.key) != nullptr) continue;
    if (!without.empty() && file_.given(without) != nullptr) continue;
    if (!unless.empty() && file_.given(first_part(unless)) != nullptr && !file_.is_automatic(unless)) continue;
    const std::string text = put(entry.key, *entry.value.get("value"), file_.root().place, "not in a ds_config");
    report.lines.push_back({text_at(entry.value, "why"), "", "", text + "; --set " + entry.key + "=... changes it"});
  }
}

}  // namespace strata::config
