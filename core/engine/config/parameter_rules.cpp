#include <algorithm>

#include "config/merge_trees.hpp"
#include "text/nearest.hpp"

namespace strata::config {
namespace {

const std::vector<std::string> known_keys{"match", "trainable", "learning_rate", "learning_rate_factor",
                                          "weight_decay"};

template <typename Value>
std::optional<Value> value_of(const Node& rule, const std::string& path, const std::string& key,
                              const std::string& type) {
  const Node* node = rule.get(key);
  if (node == nullptr) return {};
  OptionSpec spec;
  spec.type = type;
  if (type == "number") spec.minimum = "0";
  return std::get<Value>(typed_option(*node, spec, path + "." + key));
}

std::vector<std::string> patterns(const Node& rule, const std::string& path) {
  const Node* match = rule.get("match");
  if (match == nullptr)
    throw UserError(rule.place, "{}.match must be given: the names of parameters, as in \"*.bias\"", path);
  std::vector<std::string> names;
  if (match->kind == NodeKind::Scalar) names.push_back(match->text);
  for (const Node& item : match->items) names.push_back(item.kind == NodeKind::Scalar ? item.text : "");
  if (names.empty() || std::find(names.begin(), names.end(), "") != names.end())
    throw UserError(match->place,
                    "{}.match: a name or a list of names is expected, as in \"*.bias\" or [\"*.bias\", \"*norm*\"]",
                    path);
  return names;
}

// A learning rate of its own falls as the run's does, so it is kept as its part of that.
std::optional<double> learning_rate_factor(const Node& rule, const std::string& path,
                                           const LearningRateConfig& learning_rate) {
  const std::optional<double> own = value_of<double>(rule, path, "learning_rate", "number");
  const std::optional<double> factor = value_of<double>(rule, path, "learning_rate_factor", "number");
  if (own && factor)
    throw UserError(rule.place, "{}: learning_rate and learning_rate_factor are both given; keep one", path);
  if (!own) return factor;
  const double base = learning_rate.base.value_or(0.0);
  if (base == 0.0 && *own != 0.0)
    throw UserError(
        rule.place,
        "{}.learning_rate: learning_rate.base is {}, so there is no schedule to follow; set learning_rate.base", path,
        learning_rate.base ? "0" : "not given");
  return *own == base ? 1.0 : *own / base;
}

ParameterRule read_rule(const Node& node, const std::string& path, const LearningRateConfig& learning_rate,
                        const PluginChoice& optimizer) {
  if (node.kind != NodeKind::Map)
    throw UserError(node.place, "{}: a rule is expected, as in {{match: \"*.bias\", weight_decay: 0}}", path);
  for (const Entry& entry : node.entries)
    if (std::find(known_keys.begin(), known_keys.end(), entry.key) == known_keys.end())
      throw UserError(entry.place, "unknown key {}; {}", shown(path + "." + entry.key),
                      text::suggestion(entry.key, known_keys));
  ParameterRule rule;
  rule.path = path;
  rule.place = node.place;
  rule.match = patterns(node, path);
  rule.trainable = value_of<bool>(node, path, "trainable", "boolean");
  rule.learning_rate_factor = learning_rate_factor(node, path, learning_rate);
  rule.weight_decay = value_of<double>(node, path, "weight_decay", "number");
  if (!rule.trainable && !rule.learning_rate_factor && !rule.weight_decay)
    throw UserError(node.place, "{}: sets nothing; give trainable, learning_rate, learning_rate_factor or weight_decay",
                    path);
  if (rule.weight_decay && !optimizer.options.contains("weight_decay"))
    throw UserError(node.get("weight_decay")->place, "{}.weight_decay: optimizer/{} has no weight decay; leave it out",
                    path, optimizer.name);
  return rule;
}

}  // namespace

std::vector<ParameterRule> read_parameter_rules(const Node& list, const LearningRateConfig& learning_rate,
                                                const PluginChoice& optimizer) {
  if (list.kind == NodeKind::Null) return {};
  if (list.kind != NodeKind::Sequence)
    throw UserError(list.place,
                    "parameters: a list of rules is expected, as in [{match: \"*.bias\", weight_decay: 0}]");
  std::vector<ParameterRule> rules;
  for (std::size_t i = 0; i < list.items.size(); ++i)
    rules.push_back(read_rule(list.items[i], "parameters[" + std::to_string(i) + "]", learning_rate, optimizer));
  return rules;
}

}  // namespace strata::config
