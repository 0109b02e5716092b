#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

constexpr double rate = 0.01;

void needs_sums(const Optimizer& optimizer) {
  if (!has_sums(optimizer, {64, 32}) && !has_sums(optimizer, {64}))
    throw Skip("the optimizer sums nothing over parameters");
}

}  // namespace

void measure_only_measures(Subject& subject) {
  needs_sums(*subject.make<Optimizer>());
  std::mt19937_64 random = subject.random("optimizer.measure_only_measures");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors given =
          make_parameter(optimizer, "layer.weight", {31, 9}, {.copy = at::kBFloat16}, random);
      Piece piece = given.whole();
      for (int t = 0; t < 2; ++t) {
        const StepScalars scalars = scalars_of(rate, t, 0.5);
        for (int round = 0; round < optimizer.rounds(); ++round) {
          const std::int64_t count = optimizer.sums(piece.info, round);
          if (count > 0) {
            const ParameterTensors before = given.clone();
            piece.sums = at::full({count}, 3.0, at::kDouble);
            optimizer.measure(piece, round, scalars);
            const at::Tensor on_three = piece.sums.sub(3.0);
            piece.sums = at::zeros({count}, at::kDouble);
            optimizer.measure(piece, round, scalars);
            const std::string found = difference(before, given);
            require(found.empty() && at::equal(before.gradient, given.gradient),
                    "measure() of round " + std::to_string(round) + " changed the piece" +
                        (found.empty() ? " (its gradient)" : ": " + found) + with_options(options) +
                        "; the engine measures parts of pieces, and not every rank measures every part");
            require(at::allclose(on_three, piece.sums, 1e-9, 1e-9),
                    "measure() of round " + std::to_string(round) +
                        " does not add to piece.sums: begun from 3 it adds other numbers than begun from 0" +
                        with_options(options) + "; other parts of the parameter add to the same numbers");
          }
          std::array<Piece*, 1> pieces{&piece};
          optimizer.step(pieces, round, scalars);
        }
      }
    });
  }
}

}  // namespace strata::conformance::optimizer_checks
