// Which flat parameters each layer uses, and the loop that the passes about them share.
#pragma once
#include "program/instruction.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace strata::runtime {

struct FlatParameterSize {
  std::int64_t elements = 0;  // of the full values
  bool trainable = true;      // a frozen one has no gradient
};

// All layers of the model. A flat parameter may be used by several (a tied one, or a bucket of small ones).
struct ParameterUse {
  std::vector<FlatParameterSize> flat_parameters;
  std::vector<std::vector<int>> flat_parameters_of_layer;  // each at most once per layer

  const std::vector<int>& of_layer(int layer) const {
    return flat_parameters_of_layer.at(static_cast<std::size_t>(layer));
  }
  const FlatParameterSize& flat_parameter(int index) const {
    return flat_parameters.at(static_cast<std::size_t>(index));
  }
};

// Copies `program` and lets `before` and `after` append around each compute instruction; `position` counts those. What
// `after` appends comes behind the sends that follow directly, for which another stage may be waiting.
using Append = std::function<void(std::size_t position, const Instruction& compute, Program& result)>;
Program weave(const Program& program, const Append& before, const Append& after);

}  // namespace strata::runtime
