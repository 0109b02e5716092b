// What a row of the table does with a value.
#include <algorithm>
#include <cmath>

#include "config/keys.hpp"
#include "tools/deepspeed/deepspeed_reader.hpp"

namespace strata::config {
namespace {

std::string first_part(const std::string& path) {
  return path.substr(0, path.find('.'));
}

}  // namespace

void DeepSpeedReader::visit(const Leaf& leaf) {
  if (leaf.value->kind == NodeKind::Null) return line(leaf, "as if left out");
  if (first_part(leaf.path) == "pipeline" && !is_pipelined()) return pipeline(leaf);
  const std::string name = text_at(*leaf.row, "rule");
  if (!name.empty() && rule(leaf, name)) return;
  if (is_auto(*leaf.value)) return automatic(leaf);
  take(leaf, typed(leaf));
}

void DeepSpeedReader::take(const Leaf& leaf, const std::string& canonical) {
  const Node& row = *leaf.row;
  for (const std::string& notes : {std::string("notes"), "notes_on." + device_, std::string("elsewhere")}) {
    const Node* by_value = find(row, notes);
    if (by_value == nullptr || by_value->get(canonical) == nullptr) continue;
    if (notes != "elsewhere" || !exists(expand(text_at(row, "to")))) return line(leaf, text_at(*by_value, canonical));
  }
  if (const Node* at = row.get("at_stage"); at != nullptr && at->text != std::to_string(stage_))
    return refuse(leaf, "of stage " + at->text + " only; leave it out");
  const Node* values = row.get("values");
  const bool has_value = values == nullptr || values->get(canonical) != nullptr;
  const std::string target = expand(text_at(row, "to"));
  if (!target.empty() && has_value) {
    if (!exists(target)) return without_target(leaf);
    const Node value = values == nullptr ? *leaf.value : scalar_node(text_at(*values, canonical));
    const std::string text = put_from(leaf, target, value);
    return line(leaf, text + also(leaf, *leaf.value));
  }
  if (row.get("refuse") != nullptr) return refuse(leaf, text_at(row, "refuse"));
  std::string text = text_at(row, "note");
  if (const Node* unit = row.get("multiple_of"); unit != nullptr && std::stoll(canonical) % std::stoll(unit->text) != 0)
    text += "; " + text_at(row, "warning");
  line(leaf, text);
}

// What was chosen has no such option.
void DeepSpeedReader::without_target(const Leaf& leaf) {
  const std::string elsewhere = text_at(*leaf.row, "elsewhere");
  if (!elsewhere.empty()) return line(leaf, elsewhere);
  if (leaf.row->get("refuse") != nullptr) return refuse(leaf, text_at(*leaf.row, "refuse"));
  refuse(leaf, (first_part(leaf.path) == "scheduler" ? "the schedule " + schedule_ : "the optimizer " + optimizer_) +
                   " has no such parameter; leave it out");
}

void DeepSpeedReader::automatic(const Leaf& leaf) {
  const Node* rule = leaf.row->get("auto");
  if (rule == nullptr) {
    const std::vector<Node>& drop = table_.part("drop_auto").items;
    if (std::none_of(drop.begin(), drop.end(), [&](const Node& name) { return name.text == first_part(leaf.path); }))
      throw UserError(leaf.value->place, leaf.path + ": \"auto\" has no rule here; give the value, or leave it out");
    dropped_.insert(leaf.path);
    return line(leaf, "as if left out, as DeepSpeed reads it");
  }
  const std::string target = expand(text_at(*leaf.row, "to"));
  if (!exists(target)) return without_target(leaf);
  if (const Node* chosen = set(target)) return line(leaf, target + " = " + spelled(*chosen) + ", as --set says");
  if (rule->kind == NodeKind::Sequence) return hidden_size_rule(leaf, target, *rule);
  if (rule->text == "derive") {
    const Key* key = find_key(target);
    return line(leaf, target + " is derived" + (key == nullptr ? ", as when it is left out" : ": " + key->automatic));
  }
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
  const std::string text = put_from(leaf, target, scalar_node(std::to_string(static_cast<std::int64_t>(value))));
  line(leaf, text + also(leaf, *leaf.value) + ", " + formula + " of " + std::to_string(*answers_.hidden_size));
}

// DeepSpeed's default, where it is not ours.
void DeepSpeedReader::emit_default(const std::string& path, const Node& row) {
  const std::string top = first_part(path), target = expand(text_at(row, "to"));
  if ((top == "optimizer" || top == "scheduler") && given(top) == nullptr) return;
  if (target.empty() || !exists(target)) return;
  if (row.get("required") != nullptr)
    throw UserError(file_.get(top)->place, path + " must be given: " + schedule_ + " has no default for it");
  std::string value = text_at(row, "default");
  if (const Node* with = row.get("default_with"))
    for (const Entry& entry : with->entries)
      for (const std::string* chosen : {&partitioner_, &precision_, &optimizer_, &schedule_})
        if (entry.key == *chosen) value = entry.value.text;
  const Node* moved = table_.part("moved").get(path);
  if (moved != nullptr && compare_versions(compat_, text_at(*moved, "before")) < 0) value = text_at(*moved, "default");
  if (value.empty() || find(tree, target) != nullptr) return;
  const std::string origin = "DeepSpeed" + (moved != nullptr ? " " + compat_ : "") + "'s default of " + path;
  const Node source = scalar_node(value, file_.place, "DeepSpeed's default of");
  const std::string text = put(target, value, file_.place, origin);
  if (moved != nullptr) report.lines.push_back({"deepspeed_compat " + compat_, path, "left out", text});
  also({path, file_.place, &source, &row}, source);
}

void DeepSpeedReader::fill() {
  for (const Entry& entry : table_.part("fill").entries) {
    const std::string without = text_at(entry.value, "without"), unless = text_at(entry.value, "unless_given");
    if (find(tree, entry.key) != nullptr || set(entry.key) != nullptr) continue;
    if (!without.empty() && given(without) != nullptr) continue;
    if (!unless.empty() && given(first_part(unless)) != nullptr && !is_automatic(unless)) continue;
    const std::string text = put(entry.key, *entry.value.get("value"), file_.place, "not in a ds_config");
    report.lines.push_back({text_at(entry.value, "why"), "", "", text + "; --set " + entry.key + "=... changes it"});
  }
}

}  // namespace strata::config
