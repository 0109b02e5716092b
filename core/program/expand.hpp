// Pass 1: expands chunks to layers.
#pragma once
#include "program/instruction.hpp"

namespace strata::runtime {

// One compute instruction per layer of each action's chunk: forward from the first layer to the last, backward in
// reverse. `recompute` has one entry per layer of the model: true if its backward recomputes the forward. A chunk's
// last layer keeps its activations nevertheless if its backward follows at once.
Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& recompute);

}  // namespace strata::runtime
