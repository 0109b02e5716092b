// One pass of an element-wise optimizer over pieces in host memory, in tiles that fit in cache, on all of libtorch's
// threads, for any dtypes. The optimizer's code works in fp32 only.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <strata/optimizer.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace strata {

// Tile of `count` elements of a piece, from its element `begin` on. Everything except the gradient may be written.
struct ElementTile {
  std::int64_t begin = 0;  // element of the piece: a multiple of element_tile_unit
  std::int64_t count = 0;
  float* master = nullptr;
  const float* gradient = nullptr;  // summed gradient, not yet multiplied by StepScalars::gradient_factor
  // State in the order of Optimizer::state. Null for a state without one number per element: bytes, or one per block.
  std::array<float*, 4> state{};
};
inline constexpr std::int64_t element_tile_unit = 256;

// Returns the prefetch distance of a pass in an array of fp32 on this processor, in elements: shorter on AMD's, where
// that is faster (tests/benchmarks/log/optimizers.md). Changes speed only.
std::int64_t prefetched_ahead();

// True if element_pass supports the piece: host memory, contiguous, fp32, bf16 or fp16, at most 4 state tensors, which
// may be bytes too.
bool takes_element_pass(const Piece& piece);

// Calls `update` for every tile of every piece, from several threads; `piece` is its index. Then writes back master and
// state if they are not fp32, and the rounded copy into piece.parameter if it is defined. All are rounded to nearest,
// ties to even, except a bf16 master, which is rounded stochastically (random_rounding.hpp), by `scalars`. `update`
// must not depend on which elements share a tile; then results are bit-equal for every number of threads and every cut
// into pieces.
void element_pass(std::span<Piece* const> pieces, const StepScalars& scalars,
                  const std::function<void(std::size_t piece, const ElementTile& tile)>& update);

// Calls `measure` for every tile, which must write nothing. Every tile except the last has `measured_tile` elements;
// their results must be added in tile order, so that sums do not depend on the number of threads.
inline constexpr std::int64_t measured_tile = 1024;
void element_measure(const Piece& part, const std::function<void(const ElementTile& tile)>& measure);

// Returns the sum of squares of `count` numbers in fp64, in an order that is the same on every processor.
double sum_of_squares(const float* values, std::int64_t count);
double sum_of_squares(const at::BFloat16* values, std::int64_t count);
double sum_of_squares(const at::Half* values, std::int64_t count);

}  // namespace strata
