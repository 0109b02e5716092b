// Pass 1: from chunks to layers.
#pragma once
#include "program/instruction.hpp"

namespace strata::runtime {

// One compute instruction per layer of each action's chunk: forwards from the first layer to the last, backwards the
// other way. `recompute` has one entry per layer of the model: true where the backward recomputes the forward. The
// last layer of a chunk whose backward follows at once keeps its activations all the same.
Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& recompute);

}  // namespace strata::runtime
