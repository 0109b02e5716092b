// Costs of layers, for a scheduler that cuts them into chunks and orders their passes.
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

#include "stage/memory.hpp"

namespace strata::stage {

// Returns the costs by layer. Times are measured, or floating-point operations, twice as many for a backward as for a
// forward; weights follow parallel.cut. `measured`: times of all layers, or empty. Throws UserError if the cut names
// layers that the model does not have.
std::vector<LayerCost> layer_costs(const std::vector<LayerInfo>& layers, const std::string& cut,
                                   const std::vector<LayerTime>& measured);

// True if parallel.cut requires measure_layers().
inline bool cuts_by_time(const std::string& cut) {
  return cut == "measured";
}

// Runs each layer alone a few times, forward and backward, with random parameters and inputs: the ranks share the
// layers, and all return the same times, the shortest measured. A backward counts half for each kind. Holds one layer
// at a time. `build` makes a layer. Blocks the host. [collective] over the world
std::vector<LayerTime> measure_layers(const std::vector<LayerInfo>& layers,
                                      const std::function<std::unique_ptr<Layer>(int number)>& build,
                                      const Setup& setup, Memory& memory, Group& world);

}  // namespace strata::stage
