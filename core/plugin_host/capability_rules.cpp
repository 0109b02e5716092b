#include "plugin_host/capability_rules.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::plugin_host {
namespace {

bool asks(const CapabilityRule& rule, const Manifest& plugin) {
  const std::vector<Capability>& own = plugin.capabilities;
  return plugin.kind == rule.asking && std::find(own.begin(), own.end(), rule.when) != own.end();
}

bool gives(const CapabilityRule& rule, const Manifest& plugin) {
  return plugin.kind != rule.giving ||
         std::ranges::find_first_of(plugin.capabilities, rule.needs) != plugin.capabilities.end();
}

std::string names_of(const std::vector<Capability>& capabilities) {
  std::string names;
  for (const Capability capability : capabilities) {
    names += (names.empty() ? "" : " or ") + std::string(to_string(capability));
  }
  return names;
}

}  // namespace

std::span<const CapabilityRule> capability_rules() {
  using enum Capability;
  static const std::vector<CapabilityRule> rules{
      {PluginKind::Scheduler,
       SplitsBackward,
       PluginKind::Model,
       {SplittableBackward},
       "computes the gradients of inputs and of weights separately",
       "choose a scheduler that does not split backward, or a model whose weights are linear_only"},
  };
  return rules;
}

void check_capabilities(const std::vector<const Manifest*>& run) {
  for (const CapabilityRule& rule : capability_rules()) {
    for (const Manifest* const asking : run) {
      if (!asks(rule, *asking)) continue;
      for (const Manifest* const giving : run) {
        if (gives(rule, *giving)) continue;
        throw UserError(full_name(*asking) + " and " + full_name(*giving) + " cannot run together: " +
                        full_name(*asking) + " " + std::string(rule.because) + ", but " + full_name(*giving) +
                        " does not declare " + names_of(rule.needs) + "; " + std::string(rule.remedy));
      }
    }
  }
}

}  // namespace strata::plugin_host
