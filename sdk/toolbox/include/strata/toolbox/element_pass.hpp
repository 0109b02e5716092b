// How an element-wise optimizer walks over its pieces in host memory: once, by tiles that stay in cache, on all of
// libtorch's threads, whatever the dtypes. The optimizer sees fp32 only.
#pragma once
#include <strata/optimizer.hpp>

#include <array>
#include <cstdint>
#include <functional>

namespace strata {

// `count` elements of a piece. All may be written but the gradient.
struct ElementTile {
  std::int64_t count = 0;
  float* master = nullptr;
  const float* gradient = nullptr;  // as summed: not yet multiplied by StepScalars::gradient_factor
  std::array<float*, 4> state{};    // in the order of Optimizer::state
};

// Whether element_pass can: host memory, contiguous, fp32, bf16 or fp16, at most 4 state tensors.
bool takes_element_pass(const Piece& piece);

// Calls `update` for every tile, from several threads; then writes master and state back where they are not fp32, and
// the rounded copy (to nearest, ties to even) into piece.parameter where that is defined. Which elements share a tile
// must not matter to `update`: then the results are the same bits for every number of threads and every cut into
// pieces.
void element_pass(const Piece& piece, const std::function<void(const ElementTile&)>& update);

}  // namespace strata
