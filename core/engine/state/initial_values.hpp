#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter.hpp>

#include <cstdint>

namespace strata::state {

// Fills `destination` (one-dimensional, contiguous, any floating dtype and device; does nothing on meta) with the
// initial values of elements [begin, begin + destination.numel()) of the parameter, row-major. Element i is a function
// of (seed, info.name, i) alone: the Philox 4x32-10 counter generator with the seed as its key and (i / 4, hash of the
// name) as its counter, then Box-Muller for normal values. Computed in fp32 by arithmetic with the same bits on every
// CPU, then rounded, so values are equal for any cut into ranges, number of threads and mesh. Uses libtorch's threads.
// Throws Bug when the range is outside the parameter.
void fill_initial_values(const at::Tensor& destination, const ParameterInfo& info, std::int64_t begin,
                         std::uint64_t seed);

}  // namespace strata::state
