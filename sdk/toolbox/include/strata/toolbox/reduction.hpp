// Reductions for communicators of tensors in host memory.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

enum class Fold { Sum, Max };

struct Reduction {
  at::ScalarType dtype = at::kFloat;
  Fold fold = Fold::Sum;
};

// True for the dtypes that can be reduced: float, double, bfloat16, half, int, long.
bool reducible(at::ScalarType dtype);

// Computes output[i] = (((parts[0][i] + parts[1][i]) + parts[2][i]) + ...) for `elements` elements. The sum always
// follows the order of `parts`, so every way of splitting a buffer gives the same bits. 16-bit formats are summed in
// fp32 and rounded once. A NaN in any part gives NaN, also for Max. output may be one of the parts.
void reduce_in_rank_order(std::byte* output, const std::vector<const std::byte*>& parts, std::int64_t elements,
                          Reduction reduction);

}  // namespace strata
