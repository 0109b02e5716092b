// Capabilities that a plugin declares in its manifest, so that combinations are checked before anything is loaded. The
// list is closed: a capability has a meaning only through the rule that uses it (core/engine/config/conflicts.cpp).
// A plugin without capabilities promises the least and requires nothing.
#pragma once
#include <strata/plugin_kind.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata {

enum class Capability {
  ReleasesParameters,
  SplitsBackward,
  SplittableBackward,
  TensorParallel,
  OneHost,
  OwnOrder,
};

struct CapabilityInfo {
  Capability capability;
  std::string_view name;  // name in manifests and in strata_add_plugin
  PluginKind kind;        // kind of plugin that may declare it
  std::string_view meaning;
};

// All capabilities, indexed by enumerator.
inline constexpr std::array<CapabilityInfo, 6> capabilities{{
    {Capability::ReleasesParameters, "releases_parameters", PluginKind::Partitioner,
     "keeps whole parameters only around their use, so that they can be offloaded"},
    {Capability::SplitsBackward, "splits_backward", PluginKind::Scheduler,
     "computes input gradients and weight gradients at different times"},
    {Capability::SplittableBackward, "splittable_backward", PluginKind::Model,
     "its layers can compute input and weight gradients at different times"},
    {Capability::TensorParallel, "tensor_parallel", PluginKind::Model, "supports parallel.tensor"},
    {Capability::OneHost, "one_host", PluginKind::Communicator, "connects ranks of one host only"},
    {Capability::OwnOrder, "own_order", PluginKind::DataSource,
     "defines its own order of samples, for data.order: own"},
}};

constexpr std::string_view to_string(Capability capability) {
  return capabilities[static_cast<std::size_t>(capability)].name;
}

constexpr std::optional<Capability> capability_from_string(std::string_view name) {
  for (const CapabilityInfo& info : capabilities) {
    if (info.name == name) return info.capability;
  }
  return std::nullopt;
}

// True if every name in the comma-separated list is a capability that plugins of this kind may declare.
constexpr bool are_capabilities_of(std::string_view kind, std::string_view names) {
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    const std::optional<Capability> capability = capability_from_string(names.substr(0, comma));
    if (!capability || to_string(capabilities[static_cast<std::size_t>(*capability)].kind) != kind) return false;
    if (comma == std::string_view::npos) return true;
    names.remove_prefix(comma + 1);
    if (names.empty()) return false;
  }
  return true;
}

}  // namespace strata
