#include <strata/fakes/saved_state.hpp>

#include <algorithm>
#include <array>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

constexpr double cut_rate = 0.01;

// Ascending borders from 0 to `elements`, else multiples of `unit`, among them a cut behind the first unit.
std::vector<std::int64_t> draw_cuts(std::int64_t elements, std::int64_t unit, std::mt19937_64& random) {
  std::vector<std::int64_t> cuts{0, unit, elements};
  std::uniform_int_distribution<std::int64_t> place(1, elements / unit - 1);
  for (int i = 0; i < 4; ++i) cuts.push_back(place(random) * unit);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

void units_are_of_parameters(Subject& subject) {
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      for (const std::vector<std::int64_t>& shape : tried_shapes()) {
        const PieceInfo whole = info_of("layer.weight", shape);
        PieceInfo part = whole;
        part.begin = part.end / 2;
        const std::int64_t unit = optimizer.unit(whole), of_part = optimizer.unit(part);
        require(unit >= 1 && unit == of_part,
                "unit() is " + std::to_string(unit) + " for a whole parameter of " + std::to_string(whole.end) +
                    " elements and " + std::to_string(of_part) + " for a part of it" + with_options(options) +
                    "; parameters are cut by it before there are pieces");
      }
    });
  }
}

void slices_equal_whole(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.slices_equal_whole");
  if (unit_of(*subject.make<Optimizer>(), {100, 73}) >= 100 * 73)
    throw Skip("the optimizer updates whole matrices only, which are never cut");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& first) {
      const auto second = subject.make<Optimizer>(options);
      const std::int64_t rows = 90 + static_cast<std::int64_t>(random() % 20);
      const ParameterTensors whole = make_parameter(first, "layer.weight", {rows, 73}, {.copy = at::kBFloat16}, random);
      const ParameterTensors cut = whole.clone();
      for (int t = 0; t < 3; ++t) {
        whole.gradient.copy_(draw_gradient(whole.elements(), random));
        cut.gradient.copy_(whole.gradient);
        Piece all = whole.whole();
        fakes::update(first, all, scalars_of(cut_rate, t));
        const std::vector<std::int64_t> cuts = draw_cuts(whole.elements(), unit_of(first, whole.shape), random);
        const std::array<Optimizer*, 2> instances{&*second, &first};
        update_in_pieces(cut, cuts, instances, scalars_of(cut_rate, t));
        const std::string found = difference(whole, cut, has_sums(first, whole.shape));
        require(found.empty(), "step " + std::to_string(t + 1) + " of a parameter [" + std::to_string(rows) +
                                   ", 73], whole and cut into " + std::to_string(cuts.size() - 1) +
                                   " pieces: " + found + with_options(options) +
                                   "; an element's update must not depend on where its piece begins, its length or "
                                   "elements outside of its "
                                   "unit, but through sums over the whole parameter");
      }
    });
  }
}

void pieces_do_not_mix(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.pieces_do_not_mix");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& shared) {
      const auto alone_first = subject.make<Optimizer>(options), alone_second = subject.make<Optimizer>(options);
      const ParameterTensors first = make_parameter(shared, "a.weight", {13, 17}, {}, random);
      const ParameterTensors second = make_parameter(shared, "b.weight", {31, 3}, {}, random);
      const ParameterTensors first_alone = first.clone(), second_alone = second.clone();
      const auto step = [](Optimizer& optimizer, const ParameterTensors& parameter, double factor, int t) {
        Piece piece = parameter.whole();
        piece.learning_rate_factor = factor;
        fakes::update(optimizer, piece, scalars_of(cut_rate, t));
      };
      for (int t = 0; t < 4; ++t) {
        for (const auto& [together, alone] : {std::pair(first, first_alone), std::pair(second, second_alone)}) {
          together.gradient.copy_(draw_gradient(together.elements(), random));
          alone.gradient.copy_(together.gradient);
        }
        step(shared, t % 2 == 0 ? first : second, t % 2 == 0 ? 1.0 : 0.25, t);
        step(shared, t % 2 == 0 ? second : first, t % 2 == 0 ? 0.25 : 1.0, t);
        step(*alone_first, first_alone, 1.0, t);
        step(*alone_second, second_alone, 0.25, t);
        for (const auto& [together, alone] : {std::pair(first, first_alone), std::pair(second, second_alone)}) {
          const std::string found = difference(together, alone);
          require(
              found.empty(),
              "two parameters, one with learning_rate_factor 0.25, that alternate on one instance, compared with an "
              "instance for each: after step " +
                  std::to_string(t + 1) + " " + found + " in " + together.name + with_options(options) +
                  "; a step must depend only on its piece and scalars");
        }
      }
    });
  }
}

void restarts_from_state(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.restarts_from_state");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& uninterrupted) {
      const ParameterTensors through =
          make_parameter(uninterrupted, "layer.weight", {41, 7}, {.copy = at::kBFloat16}, random);
      const ParameterTensors resumed = through.clone();
      fakes::SavedState saved;
      const auto step = [](Optimizer& optimizer, const ParameterTensors& parameter, int t) {
        Piece piece = parameter.whole();
        fakes::update(optimizer, piece, scalars_of(cut_rate, t));
      };
      for (int t = 0; t < 6; ++t) {
        through.gradient.copy_(draw_gradient(through.elements(), random));
        resumed.gradient.copy_(through.gradient);
        step(uninterrupted, through, t);
        const auto fresh = subject.make<Optimizer>(options);  // one for every step: what it remembers is lost
        if (t > 0) fresh->load(saved, fresh->state_version());
        step(*fresh, resumed, t);
        saved = {};
        fresh->save(saved);
        const std::string found = difference(through, resumed);
        require(found.empty(), "step " + std::to_string(t + 1) +
                                   " of one instance, and of a new instance with the same tensors, "
                                   "updates = " +
                                   std::to_string(t) + " and load(): " + found + with_options(options) +
                                   "; keep what outlives a step in the state tensors, StepScalars::updates or save()");
      }
    });
  }
}

}  // namespace strata::conformance::optimizer_checks
