#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace strata {

enum class PluginKind {
  Device,
  Communicator,
  Partitioner,
  PrecisionPolicy,
  Scheduler,
  OffloadDevice,
  Optimizer,
  Model,
  DataSource,
  LearningRate,
};

// Names in configs, manifests, folders and file names, indexed by PluginKind.
inline constexpr std::array<std::string_view, 10> plugin_kind_names{
    "device",  "communicator", "partitioner", "precision", "scheduler",
    "offload", "optimizer",    "model",       "data",      "learning_rate"};

constexpr std::string_view to_string(PluginKind kind) {
  return plugin_kind_names[static_cast<std::size_t>(kind)];
}

constexpr std::optional<PluginKind> plugin_kind_from_string(std::string_view name) {
  for (std::size_t i = 0; i < plugin_kind_names.size(); ++i) {
    if (plugin_kind_names[i] == name) return static_cast<PluginKind>(i);
  }
  return std::nullopt;
}

class Device;
class Communicator;
class Partitioner;
class PrecisionPolicy;
class Scheduler;
class OffloadDevice;
class Optimizer;
class Model;
class DataSource;
class LearningRate;

// Maps a kind to the interface class that its plugins derive from, and back.
template <PluginKind kind>
struct InterfaceOf;
template <class Interface>
struct KindOf;
#define STRATA_KIND_INTERFACE(Interface)                       \
  template <>                                                  \
  struct InterfaceOf<PluginKind::Interface> {                  \
    using type = Interface;                                    \
  };                                                           \
  template <>                                                  \
  struct KindOf<Interface> {                                   \
    static constexpr PluginKind value = PluginKind::Interface; \
  };
STRATA_KIND_INTERFACE(Device)
STRATA_KIND_INTERFACE(Communicator)
STRATA_KIND_INTERFACE(Partitioner)
STRATA_KIND_INTERFACE(PrecisionPolicy)
STRATA_KIND_INTERFACE(Scheduler)
STRATA_KIND_INTERFACE(OffloadDevice)
STRATA_KIND_INTERFACE(Optimizer)
STRATA_KIND_INTERFACE(Model)
STRATA_KIND_INTERFACE(DataSource)
STRATA_KIND_INTERFACE(LearningRate)
#undef STRATA_KIND_INTERFACE

// Kind of an interface: kind_of<Partitioner> is PluginKind::Partitioner.
template <class Interface>
inline constexpr PluginKind kind_of = KindOf<Interface>::value;

}  // namespace strata
