#include "plugin_host/capability_rules.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::plugin_host {
namespace {

bool has(const Participant& participant, Capability capability) {
  const std::vector<Capability>& own = participant.manifest->capabilities;
  return std::find(own.begin(), own.end(), capability) != own.end();
}

bool asks(const CapabilityRule& rule, const Participant& participant) {
  return participant.manifest->kind == rule.asking && (rule.role.empty() || participant.role == rule.role) &&
         (!rule.when || has(participant, *rule.when));
}

bool gives(const CapabilityRule& rule, const Participant& participant) {
  return participant.manifest->kind != rule.giving ||
         std::any_of(rule.needs.begin(), rule.needs.end(),
                     [&](Capability capability) { return has(participant, capability); });
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
      {PluginKind::Optimizer,
       GranularityRow,
       "",
       PluginKind::Partitioner,
       {WholeLayers, KeepsRows, KeepsMatrices},
       "updates whole rows only",
       "choose a partitioner that keeps rows whole, or another optimizer"},
      {PluginKind::Optimizer,
       GranularityMatrix,
       "",
       PluginKind::Partitioner,
       {WholeLayers, KeepsMatrices},
       "updates whole parameters only",
       "choose a partitioner that keeps parameters whole, or another optimizer"},
      {PluginKind::Scheduler,
       SplitsBackward,
       "",
       PluginKind::Model,
       {SplittableBackward},
       "computes the gradients of inputs and of weights separately",
       "choose a scheduler that does not split backward, or a model whose weights are linear_only"},
      {PluginKind::OffloadDevice,
       std::nullopt,
       "parameters",
       PluginKind::Partitioner,
       {ReleasesParameters},
       "holds the parameters (offload.parameters)",
       "choose a partitioner that releases parameters between uses, or remove offload.parameters"},
  };
  return rules;
}

void check_capabilities(const std::vector<Participant>& run) {
  for (const CapabilityRule& rule : capability_rules()) {
    for (const Participant& asking : run) {
      if (!asks(rule, asking)) continue;
      for (const Participant& giving : run) {
        if (gives(rule, giving)) continue;
        throw UserError(full_name(*asking.manifest) + " and " + full_name(*giving.manifest) +
                        " cannot run together: " + full_name(*asking.manifest) + " " + std::string(rule.because) +
                        ", but " + full_name(*giving.manifest) + " does not declare " + names_of(rule.needs) + "; " +
                        std::string(rule.remedy));
      }
    }
  }
}

}  // namespace strata::plugin_host
