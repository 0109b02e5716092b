// Results of two runs in each step, and whether they differ by more than rounding.
//
// [Note: what rounding does] Runs of the same training sum the same numbers in another order. A gradient is a sum over
// a step's tokens, so two digests of it differ by some sqrt(tokens) roundings of the precision: 2 sqrt(tokens) in the
// first step, whose weights are equal still, and twice that later. tests/matrix/bounds.py has the same bounds and the
// test that they see one lost micro-batch.
//
// A product that n tensor-parallel ranks share is the sum of n parts, where one process rounds once. The parts have
// nothing to do with each other, so a rounding of each makes one of the whole; and after k of them the partial sum, of
// which the square is k/n of the whole's, rounds, for k from 2 to n. Squares of roundings add: 1 + (2 + ... + n) / n =
// 1 + (n + 1) / 2 - 1 / n, which is 1 without such ranks, 2 for two, 3.25 for four. Any other order of these sums has
// smaller partial ones. With sequence parallelism the same sums scatter their results, and what is new, gradients of
// norms, row biases and positions as a sum of n slices', are (tokens / n - 1) n + n - 1 additions: as many as before.
//
// A gradient may be nothing but rounding, as that of a key's bias is (a constant on all scores changes no softmax); so
// what is less than a 64th of a rounding of the whole gradient is no difference. In the small models such gradients are
// 3e-11 of the whole in fp32, where that is 1e-9, and the smallest others 3e-5.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::verify {

using Recorded = compare::ComparedVariant;

struct Bounds {
  double rounding = 0.0;  // half a unit of the precision's last place, relative
  std::int64_t tokens = 0;
  std::int64_t tensor_ranks = 1;
  double declared = 0.0;  // declared by a plugin other than the precision: tolerance(b), of losses and norms

  double gradient(std::size_t step) const;
  double norm(std::size_t step) const;
  double loss() const;
  double least() const { return rounding / 64.0; }  // relative to the norm of the whole gradient
};

// Comparison of one parameter's gradient, or of the whole.
struct WrongGradient {
  std::string parameter;
  double apart = 0.0;  // difference relative to the norm; infinite if one of the two is not finite
  double bound = 0.0;
  // Factor of the correct gradient, if the wrong one is a multiple of it.
  std::optional<double> factor;
};

// First step in which a run differs from the reference run.
struct WrongStep {
  std::size_t step = 0;  // from 0
  std::vector<WrongGradient> gradients;
  std::optional<WrongGradient> loss, norm;  // `parameter` is empty
};

struct Agreement {
  std::optional<WrongStep> wrong;
  double furthest = 0.0;                  // largest fraction of its bound that a gradient reached
  std::size_t parameters = 0, steps = 0;  // numbers of compared ones
};

Agreement compare(const Recorded& run, const Recorded& plain, const Bounds& bounds);

}  // namespace strata::verify
