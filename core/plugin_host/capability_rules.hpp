// A table of which plugins cannot run together, checked from manifests before a run, on every rank.
#pragma once
#include <strata/capability.hpp>

#include <span>
#include <string_view>
#include <vector>

#include "plugin_host/manifest.hpp"

namespace strata::plugin_host {

// A plugin of kind `asking` with capability `when` needs every plugin of kind `giving` to have one of `needs`.
struct CapabilityRule {
  PluginKind asking;
  Capability when;
  PluginKind giving;
  std::vector<Capability> needs;
  std::string_view because;  // "it ...", after the asking plugin's name
  std::string_view remedy;
};

std::span<const CapabilityRule> capability_rules();

// Throws UserError for the first rule that is broken, naming both plugins, the rule and what to do.
void check_capabilities(const std::vector<const Manifest*>& run);

}  // namespace strata::plugin_host
