// Numbers of each rank, combined or known to all. They travel in a tensor on `device`, where the group moves tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>
#include <vector>

namespace strata::runtime {

// Element by element over the ranks. [collective] over the group; blocks the host.
std::vector<std::int64_t> reduce_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine,
                                         ReduceOperation operation = ReduceOperation::Sum);
// All ranks', one after the other; each brings as many. [collective] over the group; blocks the host.
std::vector<std::int64_t> gather_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine);

}  // namespace strata::runtime
