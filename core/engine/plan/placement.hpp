// What `offload: auto` chooses among.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::plan {

// What moves together: the classes of the section `offload`.
enum class StateClass { Parameters, Optimizer, Activations };
inline constexpr std::array<StateClass, 3> state_classes{StateClass::Parameters, StateClass::Optimizer,
                                                         StateClass::Activations};
const char* to_string(StateClass state);

// The home of a class, and how much of it is there.
struct Residence {
  int home = -1;  // in Choices::homes; -1: the device
  double ratio = 1.0;
  bool operator==(const Residence&) const = default;
};

struct MemoryPlacement {
  std::array<Residence, 3> classes{};  // by StateClass
  bool recompute = false;              // all layers, where Choices::recompute
  int scheduler = 0;                   // in Choices::schedulers
  int staging_divisor = 1;             // of offload.read_ahead and offload.update_elements
  const Residence& of(StateClass state) const { return classes[static_cast<std::size_t>(state)]; }
  Residence& of(StateClass state) { return classes[static_cast<std::size_t>(state)]; }
  bool operator==(const MemoryPlacement&) const = default;
};

// What a config leaves open.
struct Choices {
  std::vector<config::PluginChoice> homes;       // the lowest last
  std::size_t homes_of_parameters = 2;           // so many of them, the first ones, may be where parameters rest
  std::array<bool, 3> open{};                    // by StateClass; what is not keeps its home and ratio
  bool recompute = false;                        // open
  std::vector<config::PluginChoice> schedulers;  // the config's first
  bool whole_optimizer = false;  // its state is all on the device or all away: the host does not make half an update
};

// Of the config's own keys: without schedulers but its own.
Choices choices_of(const config::RunConfig& config);

// Everything that is open on the lowest home, recomputed, in the config's order: no other placement takes less memory.
MemoryPlacement lowest(const Choices& choices);
// Every combination of homes with halves of each class; then of the fastest, in quarters.
std::vector<MemoryPlacement> coarse(const Choices& choices, int staging_divisor);
std::vector<MemoryPlacement> finer(const Choices& choices, const MemoryPlacement& found);
// Where `small` does not fit, `large` does not either.
bool takes_no_less(const MemoryPlacement& large, const MemoryPlacement& small);

// The config with this placement, and nothing left open.
config::RunConfig placed(const config::RunConfig& config, const Choices& choices, const MemoryPlacement& placement);
// The keys that the placement sets, as lines of YAML.
std::vector<std::string> as_yaml(const config::RunConfig& placed, const Choices& choices);

}  // namespace strata::plan
