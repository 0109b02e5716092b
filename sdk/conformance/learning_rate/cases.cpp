// Learning rates on drawn runs: what they answer for any update, in any order, on any rank.
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/learning_rate.hpp>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "conformance/drawn/search.hpp"

namespace strata::conformance {

namespace {

using Schedule = fakes::LoadedPlugin<LearningRate>;

std::string text_of(const TrainingRun& run) {
  return "a run of " + std::to_string(run.updates) + " updates after " + std::to_string(run.warmup) +
         " warm-up updates, base " + (run.base_rate ? std::to_string(*run.base_rate) : "not given");
}

// A run and one of its updates, with the plugin's values for it.
struct Question {
  TrainingRun run;
  std::int64_t update = 0;
  bool is_refused = false;
  double rate = 0.0;
  std::optional<double> momentum{};
  std::vector<std::int64_t> phase_starts{};

  void ask(const LearningRate& schedule) {
    try {
      rate = schedule.rate(update, run);
      momentum = schedule.momentum(update, run);
      phase_starts = schedule.phase_starts(run);
    } catch (const UserError&) {
      is_refused = true;
    }
  }
  std::string text() const { return format("{}: update {}", text_of(run), update); }
};

TrainingRun draw_run(Draws& draws) {
  TrainingRun run;
  run.updates = draws.chance(4) ? draws.size(std::int64_t{1} << 40) : draws.between(0, 100);
  if (draws.chance(2)) run.warmup = draws.size(1 << 20);
  const std::vector<std::optional<double>> bases{6e-4, 0.0, 1.0, std::nullopt};
  run.base_rate = draws.pick(bases);
  return run;
}

// At the run's begin or end, in it, where the formula changes, or after it.
std::int64_t draw_update(Draws& draws, const TrainingRun& run, const std::vector<std::int64_t>& phase_starts) {
  std::vector<std::int64_t> near{0, run.updates, run.updates + draws.size(std::int64_t{1} << 32)};
  near.insert(near.end(), phase_starts.begin(), phase_starts.end());
  const std::int64_t update = draws.chance(2) ? draws.pick(near) + draws.between(0, 2) - 1
                                              : draws.between(0, std::max<std::int64_t>(run.updates, 1));
  return std::max<std::int64_t>(update, 0);
}

void check_answer(const Question& asked, const LearningRate& schedule, bool gives_momentum) {
  if (asked.is_refused) return;
  require(std::isfinite(asked.rate) && asked.rate >= 0,
          format("{} has the rate {}; a rate must be finite and at least 0, also after the run's last update",
                 asked.text(), asked.rate));
  require(asked.momentum.has_value() == gives_momentum,
          asked.text() + " has " +
              (gives_momentum ? "no momentum but another update has one" : "a momentum but another update has none") +
              "; give a momentum for every update or for none");
  require(
      !asked.momentum || (*asked.momentum >= 0 && *asked.momentum < 1),
      format("{} has the momentum {}; it must be at least 0 and below 1", asked.text(), asked.momentum.value_or(0)));
  if (asked.run.base_rate) return;
  for (const double base : {1e-3, 2.0}) {
    Question with = asked;
    with.run.base_rate = base;
    with.ask(schedule);
    require(with.is_refused || with.rate == asked.rate,
            asked.text() +
                " has another rate with a base; a schedule that needs the base must call run.base(), which refuses a "
                "config without it");
  }
}

bool carry_out(Subject& subject, Draws& draws, const Tell& tell) {
  const fakes::OptionTexts options = draws.options(subject.manifest().options);
  std::optional<Schedule> first, other;
  std::vector<Question> asked;
  std::string said = "options: " + to_string(options);
  try {
    first.emplace(subject.make<LearningRate>(options));
    other.emplace(subject.make<LearningRate>(options, 1, MeshShape{{Axis::Data, 2}}));
    for (auto runs = draws.between(1, 3); runs > 0; --runs) {
      const TrainingRun run = draw_run(draws);
      tell(said += "; " + text_of(run));
      if (run.base_rate) (*first)->rate(0, run);
      std::vector<std::int64_t> phase_starts;
      if (run.base_rate) phase_starts = (*first)->phase_starts(run);
      for (auto questions = draws.between(1, 24); questions > 0; --questions)
        asked.push_back({.run = run, .update = draw_update(draws, run, phase_starts)});
    }
  } catch (const UserError&) {
    return false;  // it takes other options, or other runs
  }
  std::optional<bool> gives_momentum;
  for (Question& one : asked) {
    one.ask(**first);
    if (!one.is_refused && !gives_momentum) gives_momentum = one.momentum.has_value();
    check_answer(one, **first, gives_momentum.value_or(false));
  }
  for (std::size_t i = asked.size(); i-- > 0;) {  // in another order, so that what was asked before would show
    for (const bool is_other : {false, true}) {
      Question again{.run = asked[i].run, .update = asked[i].update};
      again.ask(is_other ? **other : **first);
      require(again.is_refused == asked[i].is_refused && again.rate == asked[i].rate &&
                  again.momentum == asked[i].momentum && again.phase_starts == asked[i].phase_starts,
              again.text() + ": " + (is_other ? "an instance on another rank" : "the same instance, called again,") +
                  " gives another rate, momentum or phases; ranks and resumed runs would train differently");
    }
  }
  fakes::SavedState state;
  (*first)->save(state);
  if (const std::vector<std::string> names = state.names(); !names.empty())
    throw Failure("the plugin saves " + names.front() +
                  "; a rate must depend only on the update's number, the run and the options");
  return true;
}

void drawn(Subject& subject) {
  search(subject, "learning_rate.drawn", 3000, carry_out);
}

}  // namespace

std::vector<Case> learning_rate_cases() {
  return {
      {"learning_rate.drawn",
       "Asked for any update of any run, also after its end and in any order, every rank gives the same finite rate "
       "of at least 0 and momentum below 1, without the base only where it does not matter, and saves nothing.",
       drawn, std::chrono::seconds(300), true}};
}

}  // namespace strata::conformance
