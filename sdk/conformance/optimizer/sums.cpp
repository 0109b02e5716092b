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

void sums_are_of_parameters(Subject& subject) {
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      require(optimizer.rounds() >= 1, "rounds() is " + std::to_string(optimizer.rounds()) + with_options(options) +
                                           "; an update has at least one");
      for (int round = 0; round < optimizer.rounds(); ++round) {
        const std::int64_t whole = optimizer.sums({"layer.weight", {64, 32}, 0, 2048}, round);
        const std::int64_t part = optimizer.sums({"layer.weight", {64, 32}, 1000, 1056}, round);
        require(whole >= 0 && whole == part,
                "sums() of round " + std::to_string(round) + " is " + std::to_string(whole) +
                    " for elements 0 to 2048 and " + std::to_string(part) + " for 1000 to 1056 of one parameter" +
                    with_options(options) + "; all ranks must ask for as many sums, whatever they own");
      }
    });
  }
}

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

void whole_states_agree(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.whole_states_agree");
  const auto is_whole = [](const StateTensor& state) { return state.whole > 0; };
  const std::vector<StateTensor> states = subject.make<Optimizer>()->state({"layer.weight", {64, 32}, 0, 2048});
  if (std::none_of(states.begin(), states.end(), is_whole))
    throw Skip("the optimizer has no states of whole parameters");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& first) {
      const auto second = subject.make<Optimizer>(options), third = subject.make<Optimizer>(options);
      const std::array<Optimizer*, 3> ranks{&first, &*second, &*third};
      const ParameterTensors parameter = make_parameter(first, "layer.weight", {12, 10}, {}, random);
      for (int t = 0; t < 3; ++t) {
        parameter.gradient.copy_(draw_gradient(parameter.elements(), random));
        update_in_pieces(parameter, {0, 7, 33, 90, 120}, ranks, scalars_of(rate, t));
      }
    });
  }
}

}  // namespace strata::conformance::optimizer_checks
