// What a row of the table does with a value.
#include <algorithm>
#include <cmath>

#include "config/engine_schema.hpp"
#include "config/schema.hpp"
#include "tools/deepspeed/deepspeed_reader.hpp"

namespace strata::config {
namespace {

std::string first_part(const std::string& path) {
  return path.substr(0, path.find('.'));
}

}  // namespace

void DeepSpeedReader::visit(const Leaf& leaf) {
  if (leaf.value->kind == NodeKind::Null) return line(leaf, "as if left out");
  if (first_part(leaf.path) == "pipeline" && !is_pipelined()) return pipeline_leaf(leaf);
  const std::string name = text_at(*leaf.row, "rule");
  if (!name.empty() && rule(leaf, name)) return;
  if (is_auto(*leaf.value)) return automatic(leaf);
  take(leaf, typed(leaf));
}

void DeepSpeedReader::take(const Leaf& leaf, const std::string& canonical) {
  const Node& row = *leaf.row;
  const Node* notes = row.get("notes");
  if (notes != nullptr && notes->get(canonical) != nullptr) return line(leaf, text_at(*notes, canonical));
  if (const Node* by_device = find(row, "notes_on." + device_))
    if (by_device->get(canonical) != nullptr) return line(leaf, text_at(*by_device, canonical));
  if (const Node* at = row.get("at_stage"); at != nullptr && at->text != std::to_string(stage_))
    return refuse(leaf, "of stage " + at->text + " only; leave it out");
  if (row.get("to") != nullptr) {
    const std::string target = expand(text_at(row, "to"));
    const Node* values = row.get("values");
    if (values != nullptr && values->get(canonical) == nullptr) return refuse(leaf, text_at(row, "refuse"));
    if (exists(target)) {
      Node value = values == nullptr ? *leaf.value : scalar_node(text_at(*values, canonical), leaf.value->place, "");
      const std::string text = put_from(leaf, target, value);
      return line(leaf, text + also(leaf, *leaf.value));
    }
    if (flag_at(row, "must_exist"))
      return refuse(
          leaf, (first_part(leaf.path) == "scheduler" ? "the schedule " + schedule_ : "the optimizer " + optimizer_) +
                    " has no such parameter; leave it out");
    const Node* elsewhere = row.get("elsewhere");
    if (elsewhere != nullptr && elsewhere->kind == NodeKind::Scalar) return line(leaf, elsewhere->text);
    if (elsewhere != nullptr && elsewhere->get(canonical) != nullptr) return line(leaf, text_at(*elsewhere, canonical));
  }
  if (row.get("refuse") != nullptr) return refuse(leaf, text_at(row, "refuse"));
  std::string text = text_at(row, "note");
  if (const Node* unit = row.get("multiple_of"))
    if (std::stoll(canonical) % std::stoll(unit->text) != 0) text += "; " + text_at(row, "warning");
  line(leaf, text);
}

void DeepSpeedReader::automatic(const Leaf& leaf) {
  const Node& row = *leaf.row;
  const Node* rule = row.get("auto");
  const std::vector<Node>& drop = table_.part("drop_auto").items;
  const bool drops =
      std::any_of(drop.begin(), drop.end(), [&](const Node& name) { return name.text == first_part(leaf.path); });
  if (rule == nullptr && !drops)
    throw UserError(leaf.value->place, leaf.path + ": \"auto\" has no rule here; give the value, or leave it out");
  if (rule == nullptr) {
    dropped_.insert(leaf.path);
    return line(leaf, "as if left out, as DeepSpeed reads it");
  }
  const std::string target = expand(text_at(row, "to"));
  if (!exists(target)) {
    if (flag_at(row, "must_exist")) return refuse(leaf, "the chosen type has no such parameter; leave it out");
    return line(leaf, text_at(row, "elsewhere"));
  }
  if (const Node* chosen = set(target)) return line(leaf, target + " = " + spelled(*chosen) + ", as --set says");
  if (rule->kind == NodeKind::Sequence) return hidden_size_rule(leaf, target, *rule);
  if (rule->text == "derive") return line(leaf, target + " is derived, as when it is left out");
  line(leaf, put_from(leaf, target, rule->text.starts_with("[") ? parse_value(rule->text, "") : *rule));
}

void DeepSpeedReader::hidden_size_rule(const Leaf& leaf, const std::string& target, const Node& rule) {
  const std::string power = rule.items.at(1).text;
  const std::string formula = rule.items.at(0).text + " x (hidden size" + (power == "1" ? ")" : ")^" + power);
  if (!answers_.hidden_size) {
    report.asks_hidden_size = true;
    return line(leaf, formula + ", and the model is not known here; left at the default of " + target);
  }
  const double value =
      std::stod(rule.items.at(0).text) * std::pow(static_cast<double>(*answers_.hidden_size), std::stod(power));
  line(leaf,
       put_from(leaf, target, scalar_node(std::to_string(static_cast<std::int64_t>(value)), leaf.value->place, "")) +
           also(leaf, *leaf.value) + ", " + formula + " of " + std::to_string(*answers_.hidden_size));
}

void DeepSpeedReader::emit_default(const std::string& path, const Node& row) {
  const std::string top = first_part(path);
  if ((top == "optimizer" || top == "scheduler") && given(top) == nullptr) return;
  const std::string target = expand(text_at(row, "to"));
  if (target.empty() || !exists(target)) return;
  if (flag_at(row, "required"))
    throw UserError(file_.get(top)->place, path + " must be given: " + schedule_ + " has no default for it");
  std::string value = text_at(row, "default");
  if (const Node* with = row.get("default_with"))
    for (const Entry& entry : with->entries)
      if (is_chosen(entry.key)) value = entry.value.text;
  const Node* moved = table_.part("moved").get(path);
  const bool before = moved != nullptr && compare_versions(compat_, text_at(*moved, "before")) < 0;
  if (before) value = text_at(*moved, "default");
  if (value.empty() || find(tree, target) != nullptr) return;
  const std::string origin = "DeepSpeed" + (moved != nullptr ? " " + compat_ : "") + "'s default of " + path;
  const Node source = scalar_node(value, file_.place, "DeepSpeed's default of");
  const Leaf leaf{path, file_.place, &source, &row};
  const std::string text = put(target, scalar_node(value, file_.place, ""), file_.place, origin);
  if (moved != nullptr) report.lines.push_back({"deepspeed_compat " + compat_, path, "left out", text});
  also(leaf, source);
}

void DeepSpeedReader::fill() {
  for (const Entry& entry : table_.part("fill").entries) {
    const std::string without = text_at(entry.value, "without");
    if (find(tree, entry.key) != nullptr || set(entry.key) != nullptr) continue;
    if (!without.empty() && given(without) != nullptr) continue;
    const std::string unless = text_at(entry.value, "unless_given");
    if (!unless.empty() && given(first_part(unless)) != nullptr && !is_automatic(unless)) continue;
    const std::string text =
        put(entry.key, *entry.value.get("value"), file_.place, "not in a ds_config; configs/deepspeed.yaml");
    report.lines.push_back({text_at(entry.value, "why"), "", "", text + "; --set " + entry.key + "=... changes it"});
  }
}

}  // namespace strata::config
