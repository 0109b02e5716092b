// Step of an element-wise optimizer from one formula, written once for elements and for tensors:
//
//   struct Formula {
//     static constexpr std::size_t states = 1;  // tensors of Optimizer::state
//     template <typename Number>                // float, or an fp32 tensor of a whole piece
//     void operator()(Number& p, const Number& g, std::array<Number, states>& state) const;
//   };
//
// p is the master weight, g the gradient times gradient_factor. `sqrt` and `sign` exist for both types. Pieces in host
// memory go through element_pass, others through libtorch's operators; both round alike, except for the square root
// on some processors.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sqrt.h>
#include <strata/optimizer.hpp>
#include <strata/toolbox/element_pass.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace strata {

inline float sqrt(float number) {
  return std::sqrt(number);
}

inline float sign(float number) {
  return static_cast<float>(number > 0.0F) - static_cast<float>(number < 0.0F);
}

// [Note: prefetching] Hardware prefetching restarts in each page of 4 KiB, and runs only a few loads ahead during
// divisions. So the loop prefetches too: with the elements of a cache line it prefetches a later line of each array.
// Past the end of an array a prefetch does nothing.
inline constexpr std::int64_t elements_of_line = 16;

// Compiles a function like STRATA_VECTOR_CLONES (<strata/vector_clones.hpp>), without the longest vectors: an update is
// limited by memory, vectors of 32 bytes keep up with it, and some processors clock lower with longer ones.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STRATA_UPDATE_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define STRATA_UPDATE_CLONES
#endif

// Loop for `update` of element_step, in a file of strata_vector_code:
//   STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor, const Formula&
//   formula) {
//     update_elements(tile, gradient_factor, formula);
//   }
template <typename Formula>
inline void update_elements(const ElementTile& tile, float gradient_factor, const Formula& formula) {
  const Formula of_loop = formula;  // a copy, which no store of the loop can change
  float* const p = tile.master;
  const float* const g = tile.gradient;
  const auto state = tile.state;
  const auto loop = [&]<std::size_t... k>(std::int64_t begin, std::int64_t end, std::index_sequence<k...>) {
#pragma GCC ivdep
#pragma GCC unroll 1  // fully unrolled, it would not be vectorized
    for (std::int64_t i = begin; i < end; ++i) {
      float value = p[i];
      std::array<float, sizeof...(k)> numbers{state[k][i]...};
      of_loop(value, g[i] * gradient_factor, numbers);
      ((state[k][i] = numbers[k]), ...);
      p[i] = value;  // stored last: it is computed last, and stores complete in order
    }
  };
  constexpr auto states = std::make_index_sequence<Formula::states>();
  const std::int64_t distance = prefetched_ahead();
  std::int64_t begin = 0;
  for (; begin + elements_of_line <= tile.count; begin += elements_of_line) {
    const std::int64_t ahead = begin + distance;
    __builtin_prefetch(p + ahead, 1);
    __builtin_prefetch(g + ahead);
    for (std::size_t k = 0; k < Formula::states; ++k) __builtin_prefetch(state[k] + ahead, 1);
    loop(begin, begin + elements_of_line, states);
  }
  loop(begin, tile.count, states);
}

// Writes `value`, rounded to the target's dtype, unless scalars.apply is 0. No host synchronisation.
void write_applied(const at::Tensor& target, const at::Tensor& value, const StepScalars& scalars);

// Writes `value`, consecutive elements of the piece from `begin` on, to the master and, if defined, to the parameter. A
// bf16 master is rounded stochastically (random_rounding.hpp).
void write_weights(const Piece& piece, std::int64_t begin, const at::Tensor& value, const StepScalars& scalars);

// Steps pieces in host memory (takes_element_pass), formulas[i] for pieces[i].
template <typename Formula>
void host_step(std::span<Piece* const> pieces, const StepScalars& scalars, const std::vector<Formula>& formulas,
               void (*update)(const ElementTile& tile, float gradient_factor, const Formula& formula)) {
  if (scalars.apply.item<float>() == 0.0F) return;
  const float gradient_factor = scalars.gradient_factor.item<float>();
  element_pass(pieces, scalars,
               [&](std::size_t piece, const ElementTile& tile) { update(tile, gradient_factor, formulas[piece]); });
}

// Steps a piece on any device and of any dtype. No host synchronisation.
template <typename Formula>
void tensor_step(const Piece& piece, const StepScalars& scalars, const Formula& formula) {
  at::Tensor p = piece.master.to(at::kFloat);
  const at::Tensor g = piece.gradient.to(at::kFloat) * scalars.gradient_factor.to(p.device());
  std::array<at::Tensor, Formula::states> state;
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = piece.state[i].to(at::kFloat);
  formula(p, g, state);
  for (std::size_t i = 0; i < state.size(); ++i) write_applied(piece.state[i], state[i], scalars);
  write_weights(piece, 0, p, scalars);
}

// Implements Optimizer::step, each piece by host_step or tensor_step. `formula_of` makes a piece's formula.
template <typename Formula, typename Make>
void element_step(std::span<Piece* const> pieces, const StepScalars& scalars, const Make& formula_of,
                  void (*update)(const ElementTile& tile, float gradient_factor, const Formula& formula)) {
  std::vector<Piece*> in_host_memory;
  std::vector<Formula> formulas;
  for (Piece* const piece : pieces) {
    if (piece->master.is_meta()) continue;  // updates are in place, so a dry run has nothing to count
    if (takes_element_pass(*piece)) {
      in_host_memory.push_back(piece);
      formulas.push_back(formula_of(*piece));
    } else {
      tensor_step<Formula>(*piece, scalars, formula_of(*piece));
    }
  }
  if (!in_host_memory.empty()) host_step(in_host_memory, scalars, formulas, update);
}

}  // namespace strata
