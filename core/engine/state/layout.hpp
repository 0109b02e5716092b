#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata::state {

// This rank's parameters as flat parameters.
struct Layout {
  std::vector<std::unique_ptr<FlatParameter>> flat;  // flat parameters by id
  std::vector<std::vector<int>> flat_of_layer;       // ids of the flat parameters of each local layer, ascending
};

// Groups the layers' parameters into flat parameters: within a layer, parameters of equal dtypes and trainability share
// one; a tied parameter has its own, shared by the layers that name it. Points every Parameter's tensor at its view.
// `numbers` are the layers' numbers in the whole model. Throws UserError when tied parameters differ in shape or
// trainability. `splits_backward`: the schedule splits backwards, so linear_only parameters are separate from others.
// `tied`: the first use of each tie in the whole model, which names it; other ties are named after the first of these
// layers. A parameter with a split is laid out as the part of `tensor_rank`. `unit`: unit of each parameter, see
// ParameterSpan; 1 if not given. A layer's parameters are ordered by unit, the largest first, so that each begins at a
// multiple of its unit. [any rank]
Layout lay_out(const std::vector<Layer*>& layers, const std::vector<int>& numbers, const PrecisionPolicy& precision,
               at::Device device, bool splits_backward = false, const std::map<std::string, ParameterInfo>& tied = {},
               int tensor_rank = 0, int tensor_ranks = 1,
               const std::function<std::int64_t(const ParameterInfo&)>& unit = {});

// Throws UserError if two parameters of one tie differ in shape, split or trainability.
void check_tie(const ParameterInfo& first, const ParameterInfo& other);

}  // namespace strata::state
