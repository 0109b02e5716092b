// What layers cost, for a scheduler that cuts them into chunks and orders their passes.
#pragma once
#include <strata/device.hpp>
#include <strata/group.hpp>
#include <strata/model.hpp>
#include <strata/scheduler.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "step/stage.hpp"

namespace strata::runtime {

// Of one micro-batch, in nanoseconds.
struct LayerTime {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;  // with the forward again where it is recomputed
  std::int64_t backward_weight = 0;
};

// By layer: times are the measured ones, or else floating-point operations, of which a backward has twice a forward's;
// weights are what parallel.cut says. `measured`: of every layer, or of none. Throws UserError where the cut names
// layers and the model has none of that name.
std::vector<LayerCost> layer_costs(const std::vector<LayerInfo>& layers, const std::string& cut,
                                   const std::vector<LayerTime>& measured);

// Whether parallel.cut asks for measure_layers().
inline bool cuts_by_time(const std::string& cut) {
  return cut == "measured";
}

// Runs each layer a few times by itself, forward and backward, with random parameters and inputs: the ranks share the
// layers, and all come to the same times, which are the shortest seen. A backward is taken for half of each kind. Holds
// one layer at a time. `build` makes a layer; `recompute` is by layer. Blocks the host. [collective] over the world
std::vector<LayerTime> measure_layers(const std::vector<LayerInfo>& layers, const std::vector<bool>& recompute,
                                      const BatchShape& batch, std::int64_t vocabulary,
                                      const std::function<std::unique_ptr<Layer>(int number)>& build,
                                      const StageState& stage, at::Device device);

}  // namespace strata::runtime
