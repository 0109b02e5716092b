#include "tools/deepspeed/deepspeed_translation.hpp"

#include <algorithm>
#include <cmath>

#include "config/keys.hpp"
#include "config/merge_trees.hpp"
#include "tools/deepspeed/deepspeed.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::deepspeed {

namespace {

bool any_switch_on(const config::Node& node, const std::string& name) {
  return std::any_of(node.entries.begin(), node.entries.end(), [&](const config::Entry& entry) {
    const bool here = entry.key == name && entry.value.kind == config::NodeKind::Scalar && entry.value.text != "false";
    return here || any_switch_on(entry.value, name);
  });
}

// The device that the defaults and the settings choose: a ds_config has no key for it.
std::string chosen_device(const std::vector<config::Node>& trees, const config::PluginSource& plugins) {
  std::vector<config::Node> others{trees.front()};
  if (trees.size() > 2) others.push_back(trees[2]);
  config::Node tree = config::combine(std::move(others), plugins);
  tree.place = trees[1].place;
  config::settle_automatic(tree, plugins, /*on_one_host=*/false);  // the device does not depend on it
  const config::Node* device = config::find(tree, "device.plugin");
  return device == nullptr ? "" : config::plugin_name(*config::plugin_slot("device"), device->text, plugins);
}

}  // namespace

config::Node scalar_node(std::string text) {
  config::Node node;
  node.kind = config::NodeKind::Scalar;
  node.text = std::move(text);
  return node;
}

std::string first_part(const std::string& path) {
  return path.substr(0, path.find('.'));
}

DeepSpeedTranslation::DeepSpeedTranslation(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                                           const resolve::DialectAnswers& answers)
    : device_(chosen_device(trees, plugins)),
      plugins_(plugins),
      answers_(answers),
      file_(trees[1], report.lines),
      settings_(trees.size() > 2 ? trees[2] : config::Node{}) {
  tree.kind = config::NodeKind::Map;
  tree.place = file_.root().place;
  tree.origin = file_.root().origin;
}

void DeepSpeedTranslation::read(const config::Node* compat, const config::Node* allowed) {
  choose_version(compat);
  if (allowed != nullptr && allowed->kind == config::NodeKind::Scalar) allowed_.push_back(allowed->text);
  if (allowed != nullptr)
    for (const config::Node& item : allowed->items) allowed_.push_back(item.text);
  for (const config::Entry& type : deepspeed_table("types").entries) choose_type(type.key, type.value);
  keys_ = file_.keys(allowed_);
  choose_precision();
  choose_partitioner();
  for (const DeepSpeedKey& key : keys_) visit(key);
  batch();
  for (const config::Entry& row : deepspeed_table("keys").entries)
    if (file_.given(row.key) == nullptr || dropped_.contains(row.key)) emit_default(row.key, row.value);
  fill();
  choose_momentum();
  leave_out_idle();
}

const config::Node* DeepSpeedTranslation::set(const std::string& path) const {
  const config::Node* node = config::find(settings_, path);
  return node == nullptr || node->kind == config::NodeKind::Null ? nullptr : node;
}

bool DeepSpeedTranslation::exists(const std::string& target) const {
  if (config::find_key(target) != nullptr) return true;
  const std::size_t last = target.rfind('.'), name = target.rfind('.', last - 1);  // SLOT.NAME.OPTION
  if (last == std::string::npos || name == std::string::npos) return false;
  const config::PluginSlot* slot = config::plugin_slot(target.substr(0, name));
  if (slot == nullptr) return false;
  const std::optional<config::PluginSchema> schema =
      plugins_.find(slot->kind, target.substr(name + 1, last - name - 1));
  return !schema || std::any_of(schema->options.begin(), schema->options.end(),
                                [&](const OptionSpec& option) { return option.name == target.substr(last + 1); });
}

std::string DeepSpeedTranslation::expand(std::string text) const {
  for (const auto& [name, chosen] : chosen_)
    if (const std::size_t at = text.find("{" + name + "}"); at != std::string::npos)
      text.replace(at, name.size() + 2, chosen);
  return text;
}

std::string DeepSpeedTranslation::typed(const DeepSpeedKey& key) const {
  return config::to_text(file_.typed(key.path, *key.value));
}

Count DeepSpeedTranslation::count(const std::string& path) const {
  return file_.value<std::int64_t>(path, "1");
}

std::string DeepSpeedTranslation::put(const std::string& path, config::Node value, const Place& place,
                                      const std::string& origin) {
  const std::string text = path + " = " + spelled(value);
  value.origin = origin;
  value.place = place;
  for (config::Node& item : value.items) item.place = place;
  config::put_at(tree, path, std::move(value));
  const config::Node* chosen = set(path);
  return chosen == nullptr ? text : text + " (--set changes it to " + spelled(*chosen) + ")";
}

std::string DeepSpeedTranslation::put_from(const DeepSpeedKey& key, const std::string& path,
                                           const config::Node& value) {
  return put(path, value, key.value->place, key.value->origin + " " + key.path);
}

std::string DeepSpeedTranslation::also(const DeepSpeedKey& key) {
  std::string text;
  if (const config::Node* more = key.row->get("also"))
    for (const config::Entry& entry : more->entries) {
      const std::string target = expand(entry.key);
      if (exists(target))
        text += ", " + put_from(key, target, entry.value.text == "{value}" ? *key.value : entry.value);
    }
  return text;
}

void DeepSpeedTranslation::line(const DeepSpeedKey& key, const std::string& text, const std::string& derived) {
  report.lines.push_back({key.value->origin, key.path, spelled(*key.value), text, key.value->place.line, derived});
}

void DeepSpeedTranslation::refuse(const DeepSpeedKey& key, const std::string& reason) {
  const bool optional = key.row->get("optional") != nullptr;
  if (optional && std::find(allowed_.begin(), allowed_.end(), key.path) != allowed_.end())
    return line(key, "ignored by --allow: " + reason);
  throw UserError(key.place, "{}: {} is refused: {}{}", key.path, spelled(*key.value), reason,
                  optional ? ", or run without it by --allow " + key.path : "");
}

void DeepSpeedTranslation::visit(const DeepSpeedKey& key) {
  if (key.row == nullptr) return line(key, "ignored, as in DeepSpeed, which has no such key");
  if (key.row->get("type") == nullptr) return block(key);
  if (key.value->kind == config::NodeKind::Null) return line(key, "as if left out");
  if (key.row->get("slot") != nullptr) return say_chosen(key);
  if (first_part(key.path) == "pipeline" && !is_pipelined()) return pipeline(key);
  const std::string name = text_at(*key.row, "rule");
  if (!name.empty() && rule(key, name)) return;
  if (config::is_auto(*key.value)) return automatic(key);
  take(key, typed(key));
}

void DeepSpeedTranslation::block(const DeepSpeedKey& key) {
  const config::Node &row = *key.row, &value = *key.value;
  const std::string name = row.get("switch") == nullptr ? "enabled" : text_at(row, "switch");
  const bool on = (value.kind == config::NodeKind::Scalar && value.text != "false") || any_switch_on(value, name) ||
                  (row.get("present") != nullptr && value.kind == config::NodeKind::Map && value.get(name) == nullptr);
  if (!on) return line(key, "not enabled: nothing to do");
  if (row.get("on") != nullptr) return line(key, text_at(row, "on"));
  refuse(key, text_at(row, "refuse"));
}

void DeepSpeedTranslation::take(const DeepSpeedKey& key, const std::string& canonical) {
  const config::Node& row = *key.row;
  const std::string target = expand(text_at(row, "to"));
  for (const std::string& notes : {std::string("notes"), "notes_on." + device_, std::string("elsewhere")}) {
    const config::Node* by_value = config::find(row, notes);
    if (by_value == nullptr || by_value->get(canonical) == nullptr) continue;
    if (notes != "elsewhere" || !exists(target)) return line(key, text_at(*by_value, canonical));
  }
  if (const config::Node* at = row.get("at_stage"); at != nullptr && at->text != stage_)
    return refuse(key, "for stage " + at->text + " only; leave it out");
  const config::Node* values = row.get("values");
  const config::Node* value = values == nullptr ? key.value : values->get(canonical);
  if (!target.empty() && value != nullptr) {
    if (!exists(target)) return without_target(key);
    const std::string text = put_from(key, target, *value);
    return line(key, text + also(key));
  }
  if (row.get("refuse") != nullptr) return refuse(key, text_at(row, "refuse"));
  std::string text = expand(text_at(row, "note"));
  if (const config::Node* unit = row.get("multiple_of");
      unit != nullptr && std::stoll(canonical) % std::stoll(unit->text) != 0)
    text += "; " + text_at(row, "warning");
  line(key, text);
}

void DeepSpeedTranslation::without_target(const DeepSpeedKey& key) {
  const std::string elsewhere = text_at(*key.row, "elsewhere"), reason = text_at(*key.row, "refuse");
  if (!elsewhere.empty()) return line(key, elsewhere);
  refuse(key, reason.empty() ? expand(text_at(*deepspeed_table("types").get(first_part(key.path)), "lacks")) : reason);
}

void DeepSpeedTranslation::automatic(const DeepSpeedKey& key) {
  const config::Node* rule = key.row->get("auto");
  if (rule == nullptr) {
    const std::vector<config::Node>& drop = deepspeed_table("drop_auto").items;
    if (std::none_of(drop.begin(), drop.end(),
                     [&](const config::Node& name) { return name.text == first_part(key.path); }))
      throw UserError(key.value->place, "{}: \"auto\" is not supported; give a value, or leave it out", key.path);
    dropped_.insert(key.path);
    return line(key, "as if left out, as in DeepSpeed");
  }
  const std::string target = expand(text_at(*key.row, "to"));
  if (!exists(target)) return without_target(key);
  if (const config::Node* chosen = set(target)) return line(key, target + " = " + spelled(*chosen) + ", by --set");
  if (rule->kind == config::NodeKind::Sequence) return hidden_size_rule(key, target, *rule);
  if (rule->text == "derive") {
    const config::Key* ours = config::find_key(target);
    return line(key, target + " is derived" + (ours == nullptr ? ", as when it is left out" : ": " + ours->automatic));
  }
  line(key, put_from(key, target, rule->text.starts_with("[") ? config::parse_value(rule->text, "") : *rule));
}

void DeepSpeedTranslation::hidden_size_rule(const DeepSpeedKey& key, const std::string& target,
                                            const config::Node& rule) {
  const std::string factor = rule.items.at(0).text, power = rule.items.at(1).text;
  const std::string formula = factor + " x (hidden size" + (power == "1" ? ")" : ")^" + power);
  if (!answers_.hidden_size) {
    report.asks_hidden_size = true;
    return line(key, formula + ", and the model is not known; left at the default of " + target);
  }
  const double value = std::stod(factor) * std::pow(static_cast<double>(*answers_.hidden_size), std::stod(power));
  const std::string text = put_from(key, target, scalar_node(std::to_string(static_cast<std::int64_t>(value))));
  line(key, text + also(key) + ", " + formula + " of " + std::to_string(*answers_.hidden_size));
}

resolve::Translation DeepSpeed::translate(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                                          const resolve::DialectAnswers& answers) const {
  strata_check(trees.size() > 1, "a ds_config lies over the defaults");
  config::Node settings = trees.size() > 2 ? trees[2] : config::Node{};
  if (trees.size() > 2)
    for (const char* key : {"deepspeed_compat", "deepspeed_allow"}) trees[2].remove(key);
  DeepSpeedTranslation translation(trees, plugins, answers);
  translation.read(settings.get("deepspeed_compat"), settings.get("deepspeed_allow"));
  trees[1] = std::move(translation.tree);
  std::vector<resolve::DialectLine>& lines = translation.report.lines;
  std::stable_sort(lines.begin(), lines.end(), [](const resolve::DialectLine& a, const resolve::DialectLine& b) {
    return a.number != 0 && (b.number == 0 || a.number < b.number);
  });
  return std::move(translation.report);
}

}  // namespace strata::deepspeed
