// The placements among which `offload: auto` chooses.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::plan {

// Classes of state that move together, as in the config's section `offload`.
enum class StateClass { Parameters, Optimizer, Activations };
inline constexpr std::array<StateClass, 3> state_classes{StateClass::Parameters, StateClass::Optimizer,
                                                         StateClass::Activations};
const char* to_string(StateClass state);

// Home of a class of state.
struct Residence {
  int home = -1;  // index in Choices::homes; -1: the device
  double ratio = 1.0;
  bool operator==(const Residence&) const = default;
};

struct MemoryPlacement {
  std::array<Residence, 3> classes{};  // by StateClass
  bool recompute = false;              // recompute all layers, if Choices::recompute
  int scheduler = 0;                   // index in Choices::schedulers
  int staging_divisor = 1;             // divisor of offload.read_ahead and offload.update_elements
  const Residence& of(StateClass state) const { return classes[static_cast<std::size_t>(state)]; }
  Residence& of(StateClass state) { return classes[static_cast<std::size_t>(state)]; }
  bool operator==(const MemoryPlacement&) const = default;
};

// Options that a config leaves open.
struct Choices {
  std::vector<config::PluginChoice> homes;       // homes to choose from, the slowest last
  std::size_t homes_of_parameters = 2;           // number of homes, the first ones, that parameters may have
  std::array<bool, 3> open{};                    // by StateClass: true if home and ratio are open
  bool recompute = false;                        // true if recomputation is open
  std::vector<config::PluginChoice> schedulers;  // schedulers to choose from, the config's own first
  bool whole_optimizer = false;  // optimizer state moves only as a whole: the host makes no partial updates
};

// Returns the open options of the config's own keys, with its scheduler as the only one.
Choices choices_of(const config::RunConfig& config);

// Returns the placement with the least memory: everything open on the slowest home, with recomputation.
MemoryPlacement lowest(const Choices& choices);
// Returns placements to try. coarse(): every combination of homes with halves of each class. finer(): variants of
// `found` in quarters.
std::vector<MemoryPlacement> coarse(const Choices& choices, int staging_divisor);
std::vector<MemoryPlacement> finer(const Choices& choices, const MemoryPlacement& found);
// True if `large` takes at least as much memory as `small`.
bool takes_no_less(const MemoryPlacement& large, const MemoryPlacement& small);

// Returns the config with this placement and no open option.
config::RunConfig placed(const config::RunConfig& config, const Choices& choices, const MemoryPlacement& placement);
// Returns the keys that the placement sets, as lines of YAML.
std::vector<std::string> as_yaml(const config::RunConfig& placed, const Choices& choices);

}  // namespace strata::plan
