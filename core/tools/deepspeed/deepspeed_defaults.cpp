// Keys that a ds_config leaves out: DeepSpeed's defaults where ours differ, and settings without a key there.
#include "tools/deepspeed/deepspeed_table.hpp"
#include "tools/deepspeed/deepspeed_translation.hpp"

namespace strata::deepspeed {

void DeepSpeedTranslation::emit_default(const std::string& path, const config::Node& row) {
  const std::string top = first_part(path), target = expand(text_at(row, "to"));
  if ((top == "optimizer" || top == "scheduler") && file_.given(top) == nullptr) return;
  if (target.empty() || !exists(target)) return;
  const Place& place = file_.root().place;
  if (row.get("required") != nullptr)
    throw UserError(file_.given(top)->place, "{} must be given: {} has no default for it", path,
                    chosen_["learning_rate"]);
  std::string value = text_at(row, "default");
  if (const config::Node* with = row.get("default_with"))
    for (const auto& [slot, chosen] : chosen_)
      if (const config::Node* its = with->get(chosen)) value = its->text;
  const config::Node* moved = deepspeed_table("moved").get(path);
  const std::string compat = chosen_["version"];
  if (moved != nullptr && is_older(compat, text_at(*moved, "before"))) value = text_at(*moved, "default");
  const std::optional<Default> ruled = default_by_rule(text_at(row, "default_rule"));
  if (ruled) value = ruled->value;
  if (value.empty() || config::find(tree, target) != nullptr) return;
  config::Node source = value.starts_with("[") ? config::parse_value(value, "") : scalar_node(value);
  source.place = place;
  source.origin = ruled              ? ruled->owner + "'s default of"
                  : moved != nullptr ? "DeepSpeed " + compat + "'s default of"
                                     : "DeepSpeed's default of";
  const DeepSpeedKey key{path, place, &source, &row};
  const std::string text = put_from(key, target, source);
  if (moved != nullptr) report.lines.push_back({"deepspeed_compat " + compat, path, "left out", text});
  if (ruled) report.lines.push_back({ruled->reason, path, "left out", text + ", the default of " + ruled->owner});
  also(key);
}

std::optional<DeepSpeedTranslation::Default> DeepSpeedTranslation::default_by_rule(const std::string& rule) const {
  if (rule.empty()) return {};
  if (rule != "weight_decay") throw Bug("keys.yaml names an unknown rule of a default, {}", rule);
  const bool is_adam = chosen_.at("optimizer") == "adamw";
  if (!is_adam || !file_.value<bool>("optimizer.params.torch_adam").value_or(false)) return {};
  const bool decoupled =
      optimizer_type() == "adamw" || file_.value<bool>("optimizer.params.adam_w_mode").value_or(true);
  if (!decoupled) return {};  // torch.optim.Adam, which decays by 0 as DeepSpeed's own
  return Default{"0.01", "torch.optim.AdamW", "torch_adam is true"};
}

void DeepSpeedTranslation::fill() {
  for (const config::Entry& entry : deepspeed_table("fill").entries) {
    const std::string without = text_at(entry.value, "without"), unless = text_at(entry.value, "unless_given");
    if (config::find(tree, entry.key) != nullptr || set(entry.key) != nullptr) continue;
    if (!without.empty() && file_.given(without) != nullptr) continue;
    if (!unless.empty() && file_.given(first_part(unless)) != nullptr && !file_.is_automatic(unless)) continue;
    const std::string text = put(entry.key, *entry.value.get("value"), file_.root().place, "not in a ds_config");
    report.lines.push_back({text_at(entry.value, "why"), "", "", text + "; --set " + entry.key + "=... changes it"});
  }
}

}  // namespace strata::deepspeed
