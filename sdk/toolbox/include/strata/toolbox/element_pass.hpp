// One pass of an element-wise optimizer over pieces in host memory, in tiles that fit in cache, on all of libtorch's
// threads, for any dtypes. The optimizer sees only fp32.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <strata/optimizer.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>

namespace strata {

// `count` elements of a piece from its element `begin` on. Everything but the gradient may be written.
struct ElementTile {
  std::int64_t begin = 0;  // in the piece: a multiple of element_tile_unit
  std::int64_t count = 0;
  float* master = nullptr;
  const float* gradient = nullptr;  // the summed gradient, not yet multiplied by StepScalars::gradient_factor
  // In the order of Optimizer::state. Null for one that has not one number for each element: bytes, or one for a block.
  std::array<float*, 4> state{};
};
inline constexpr std::int64_t element_tile_unit = 256;

// How far ahead of its place in an array of fp32 a pass prefetches on this processor, in elements: a shorter way on
// AMD's, where that is faster (tests/benchmarks/log/optimizers.md). It changes speed only.
std::int64_t prefetched_ahead();

// True if element_pass supports the piece: host memory, contiguous, fp32, bf16 or fp16, at most 4 state tensors, which
// may be bytes too.
bool takes_element_pass(const Piece& piece);

// Calls `update` for every tile of every piece, from several threads; `piece` is its index. Then writes back master and
// state if they are not fp32, and the rounded copy into piece.parameter if it is defined. All are rounded to nearest,
// ties to even, but a master of bf16, which is rounded at random (random_rounding.hpp), by `scalars`.
// `update` must not depend on which elements share a tile; then results are bit-equal for every number of threads and
// every cut into pieces.
void element_pass(std::span<Piece* const> pieces, const StepScalars& scalars,
                  const std::function<void(std::size_t piece, const ElementTile& tile)>& update);

// The same for an optimizer that measures, which may write nothing. Every tile but the last has `measured_tile`
// elements; what they give must be added in their order, so that the sums are those of any number of threads.
inline constexpr std::int64_t measured_tile = 1024;
void element_measure(const Piece& part, const std::function<void(const ElementTile& tile)>& measure);

// The sum of squares of `count` numbers in fp64, in an order that is the same on every processor.
double sum_of_squares(const float* values, std::int64_t count);
double sum_of_squares(const at::BFloat16* values, std::int64_t count);
double sum_of_squares(const at::Half* values, std::int64_t count);

}  // namespace strata
