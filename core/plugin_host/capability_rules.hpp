// A table of which plugins cannot run together, checked from manifests before a run, on every rank.
#pragma once
#include <strata/capability.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin_host/manifest.hpp"

namespace strata::plugin_host {

// A plugin of the run.
struct Participant {
  const Manifest* manifest = nullptr;
  std::string role;  // for an offload device: "parameters", "optimizer" or "activations"; else empty
};

// A plugin of kind `asking`, with capability `when` or in the role `role`, needs every plugin of kind `giving` to have
// one of `needs`.
struct CapabilityRule {
  PluginKind asking;
  std::optional<Capability> when;  // none: every plugin of that kind (and role)
  std::string_view role;           // empty: any
  PluginKind giving;
  std::vector<Capability> needs;
  std::string_view because;  // "it ...", after the asking plugin's name
  std::string_view remedy;
};

std::span<const CapabilityRule> capability_rules();

// Throws UserError for the first rule that is broken, naming both plugins, the rule and what to do.
void check_capabilities(const std::vector<Participant>& run);

}  // namespace strata::plugin_host
