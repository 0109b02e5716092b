#include "state/parameter_rules.hpp"

#include <fnmatch.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cctype>
#include <set>

#include "text/nearest.hpp"

namespace strata::state {

namespace {

// A parameter and all it is called: by its own name, those in files, and those of the parameters tied to it.
struct Named {
  std::string name;
  bool trainable = true;
  std::set<std::string> names;
};

std::vector<Named> all_parameters(const std::vector<LayerInfo>& layers, const CheckpointNames& names) {
  std::map<std::string, std::set<std::string>> called;
  for (const auto& [canonical, other] : names.names) called[canonical].insert(other);
  std::map<std::string, std::set<std::string>> of_tie;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters) {
      called[parameter.name].insert(parameter.name);
      if (!parameter.tie.empty()) of_tie[parameter.tie].merge(std::set(called[parameter.name]));
    }
  std::vector<Named> all;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters)
      all.push_back({parameter.name, parameter.trainable,
                     parameter.tie.empty() ? called[parameter.name] : of_tie[parameter.tie]});
  return all;
}

bool fits(const std::string& pattern, const Named& parameter) {
  return std::any_of(parameter.names.begin(), parameter.names.end(),
                     [&](const std::string& name) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

// The three nearest, of each role one: names that differ in numbers only are of one role.
std::string nearest_names(const std::string& pattern, const std::vector<Named>& parameters) {
  std::vector<std::pair<std::size_t, std::string>> by_distance;
  for (const Named& parameter : parameters)
    by_distance.emplace_back(text::edit_distance(pattern, parameter.name), parameter.name);
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::set<std::string> roles;
  std::string text;
  for (const auto& [ignored, name] : by_distance) {
    std::string role;
    for (const char letter : name)
      if (std::isdigit(static_cast<unsigned char>(letter)) == 0) role += letter;
    if (!roles.insert(role).second) continue;
    text += (text.empty() ? "" : ", ") + name;
    if (roles.size() == 3) break;
  }
  return text;
}

}  // namespace

ParameterRules::ParameterRules(const std::vector<config::ParameterRule>& rules, const std::vector<LayerInfo>& layers,
                               const CheckpointNames& names) {
  const std::vector<Named> parameters = all_parameters(layers, names);
  for (const Named& parameter : parameters) settings_[parameter.name].trainable = parameter.trainable;
  for (const config::ParameterRule& rule : rules)
    for (const std::string& pattern : rule.match) {
      bool any = false;
      for (const Named& parameter : parameters) {
        if (!fits(pattern, parameter)) continue;
        ParameterSettings& settings = settings_[parameter.name];
        if (rule.trainable) settings.trainable = *rule.trainable;
        if (rule.learning_rate_factor) settings.learning_rate_factor = *rule.learning_rate_factor;
        if (rule.weight_decay) settings.weight_decay = rule.weight_decay;
        any = true;
      }
      if (!any)
        throw UserError(rule.place,
                        "{}.match: \"{}\" matches no parameter of this model (* matches any text); the nearest are {}",
                        rule.path, pattern, nearest_names(pattern, parameters));
    }
  const bool any =
      std::any_of(settings_.begin(), settings_.end(), [](const auto& one) { return one.second.trainable; });
  if (!any)
    throw UserError((rules.empty() ? Place{} : rules.back().place),
                    "every parameter is frozen, so there is nothing to train; remove a rule with trainable: false");
}

const ParameterSettings& ParameterRules::of(const std::string& parameter) const {
  const auto found = settings_.find(parameter);
  if (found == settings_.end())
    throw Bug("a layer was built with the parameter {}, which its description does not name", parameter);
  return found->second;
}

}  // namespace strata::state
