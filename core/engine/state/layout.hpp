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

// The parameters of this rank's layers as flat parameters.
struct Layout {
  std::vector<std::unique_ptr<FlatParameter>> flat;  // by id
  std::vector<std::vector<int>> flat_of_layer;       // by local layer: ids of the flat parameters it uses, ascending
};

// Groups the layers' parameters by what a flat parameter may hold: within a layer those of equal dtypes and
// trainability lie together; a tied parameter is a flat parameter of its own, shared by the layers that name it. Points
// every Parameter's tensor at its view. `numbers` are the layers' numbers in the whole model. Throws UserError when
// tied parameters differ in shape or trainability. `splits_backward`: the schedule splits backwards, so what is
// linear_only lies apart from what is not. `tied`: by tie, its first use in the whole model, which names it; ties that
// are not in it are named after the first of these layers. Of a parameter with a split it lays out the part of
// `tensor_rank`. `unit`: of each parameter, see ParameterSpan; 1 where it is not given. A layer's parameters lie in the
// order of their units, the largest first, so that one after the other begins at a multiple of its own. [any rank]
Layout lay_out(const std::vector<Layer*>& layers, const std::vector<int>& numbers, const PrecisionPolicy& precision,
               at::Device device, bool splits_backward = false, const std::map<std::string, ParameterInfo>& tied = {},
               int tensor_rank = 0, int tensor_ranks = 1,
               const std::function<std::int64_t(const ParameterInfo&)>& unit = {});

// Throws UserError if the parameters, of one tie, differ in shape, split or trainability.
void check_tie(const ParameterInfo& first, const ParameterInfo& other);

}  // namespace strata::state
