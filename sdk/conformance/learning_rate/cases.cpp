// Cases for learning rates, on runs of 0 to a billion updates.
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

namespace {

using Schedule = fakes::LoadedPlugin<LearningRate>;

std::string text_of(const TrainingRun& run) {
  return "a run of " + std::to_string(run.updates) + " updates after " + std::to_string(run.warmup) +
         " warm-up updates, base " + (run.base_rate ? std::to_string(*run.base_rate) : "not given");
}

std::vector<TrainingRun> all_runs() {
  std::vector<TrainingRun> runs;
  for (const std::int64_t updates : {0, 1, 2, 3, 10, 100, 1'000'000'000})
    for (const std::int64_t warmup : {0, 1, 7})
      for (const double base : {6e-4, 0.0, 1.0}) runs.push_back({base, updates, warmup});
  return runs;
}

// Ascending: the first, the last and some between, where the formula changes, and some after the run.
std::vector<std::int64_t> updates_of(const LearningRate& schedule, const TrainingRun& run) {
  const std::int64_t last = std::max<std::int64_t>(run.updates - 1, 0);
  std::vector<std::int64_t> updates{0, 1, 2, last / 3, last / 2, last - 1, last, last + 1, last + 2, 3 * last + 7};
  for (const std::int64_t start : schedule.phase_starts(run))
    for (std::int64_t near = start - 1; near <= start + 1; ++near) updates.push_back(near);
  std::erase_if(updates, [](std::int64_t update) { return update < 0; });
  std::sort(updates.begin(), updates.end());
  return updates;
}

// Calls `work` for the runs that it takes, a UserError being its refusal. Throws Failure when it takes none.
template <typename Work>
void for_each_run(const LearningRate& schedule, Work work) {
  int taken = 0;
  for (const TrainingRun& run : all_runs()) {
    try {
      schedule.rate(0, run);
      schedule.momentum(0, run);
    } catch (const UserError&) {
      continue;
    }
    ++taken;
    work(run, updates_of(schedule, run));
  }
  require(taken > 0, "the plugin refuses every run, with 0 to a billion updates and a base of 0, 6e-4 or 1");
}

void check_rates(const LearningRate& schedule, const std::string& setting) {
  for_each_run(schedule, [&](const TrainingRun& run, const std::vector<std::int64_t>& updates) {
    for (const std::int64_t update : updates) {
      const double rate = schedule.rate(update, run);
      require(std::isfinite(rate) && rate >= 0,
              setting + text_of(run) + ": update " + std::to_string(update) + " has the rate " + std::to_string(rate) +
                  "; a rate must be finite and at least 0, also after the run's last update");
    }
  });
}

void rates_are_rates(Subject& subject) {
  check_rates(*subject.make<LearningRate>(), "");
}

void momenta_are_momenta(Subject& subject) {
  const Schedule schedule = subject.make<LearningRate>();
  for_each_run(*schedule, [&](const TrainingRun& run, const std::vector<std::int64_t>& updates) {
    const bool gives = schedule->momentum(0, run).has_value();
    for (const std::int64_t update : updates) {
      const std::string where = text_of(run) + ": update " + std::to_string(update) + " has ";
      const std::optional<double> momentum = schedule->momentum(update, run);
      require(momentum.has_value() == gives, where + (momentum ? "a" : "no") + " momentum but update 0 has " +
                                                 (gives ? "one" : "none") +
                                                 "; give a momentum for every update or for none");
      require(!momentum || (*momentum >= 0 && *momentum < 1),
              where + "the momentum " + std::to_string(momentum.value_or(0)) + "; it must be at least 0 and below 1");
    }
  });
}

struct Answer {
  double rate;
  std::optional<double> momentum;
  std::vector<std::int64_t> phase_starts;
  bool operator==(const Answer&) const = default;
};

Answer answer(const LearningRate& schedule, std::int64_t update, const TrainingRun& run) {
  return {schedule.rate(update, run), schedule.momentum(update, run), schedule.phase_starts(run)};
}

void answers_are_pure(Subject& subject) {
  const Schedule first = subject.make<LearningRate>(), other = subject.make<LearningRate>({}, 1, {1, 2, 1});
  struct Asked {
    TrainingRun run;
    std::int64_t update;
    Answer answer;
  };
  std::vector<Asked> asked;
  for_each_run(*first, [&](const TrainingRun& run, const std::vector<std::int64_t>& updates) {
    for (const std::int64_t update : updates) asked.push_back({run, update, answer(*first, update, run)});
  });
  std::reverse(asked.begin(), asked.end());  // so that what was asked before would show
  for (const Asked& one : asked) {
    const auto compare = [&](const LearningRate& schedule, const char* who) {
      require(answer(schedule, one.update, one.run) == one.answer,
              text_of(one.run) + ": update " + std::to_string(one.update) + ": " + who +
                  " gives another rate, momentum or phases; ranks and resumed runs would train differently");
    };
    compare(*first, "the same instance, called again,");
    compare(*other, "an instance on another rank");
  }
}

void nothing_is_saved(Subject& subject) {
  const Schedule schedule = subject.make<LearningRate>();
  for_each_run(*schedule, [&](const TrainingRun& run, const std::vector<std::int64_t>& updates) {
    for (const std::int64_t update : updates) schedule->rate(update, run);
  });
  fakes::SavedState state;
  schedule->save(state);
  if (const std::vector<std::string> names = state.names(); !names.empty())
    throw Failure("the plugin saves " + names.front() +
                  "; a rate must depend only on the update's number, the run and the options");
}

void missing_base_is_refused(Subject& subject) {
  const Schedule schedule = subject.make<LearningRate>();
  TrainingRun run{std::nullopt, 10, 0};
  for (std::int64_t update = 0; update < 10; ++update) {
    double without = 0;
    try {
      without = schedule->rate(update, run);
    } catch (const UserError&) {
      continue;
    }
    for (const double base : {1e-3, 2.0})
      require(
          schedule->rate(update, {base, 10, 0}) == without,
          "update " + std::to_string(update) +
              " has one rate without learning_rate.base and another with it; a schedule that needs the base must call "
              "run.base(), which refuses a config without it");
  }
}

void settings_are_valid(Subject& subject) {
  if (subject.manifest().options.empty()) throw Skip("the plugin has no options");
  for (const fakes::OptionTexts& setting : subject.settings()) {
    std::optional<Schedule> schedule;
    try {
      schedule.emplace(subject.make<LearningRate>(setting));
      (*schedule)->rate(0, {6e-4, 100, 0});
    } catch (const UserError&) {
      continue;
    }
    check_rates(**schedule, "with " + to_string(setting) + ", ");
  }
}

}  // namespace

std::vector<Case> learning_rate_cases() {
  return {
      {"learning_rate.rates",
       "Every update has a finite rate of at least 0, including the first one and those after the run's last.",
       rates_are_rates},
      {"learning_rate.momenta", "A momentum is at least 0 and below 1, and is given for every update or for none.",
       momenta_are_momenta},
      {"learning_rate.pure", "The answers are the same every time and on every rank.", answers_are_pure},
      {"learning_rate.no_state", "The plugin saves no state; a resumed run computes the rate from the update's number.",
       nothing_is_saved},
      {"learning_rate.base", "Without learning_rate.base the plugin throws a UserError or does not use it.",
       missing_base_is_refused},
      {"learning_rate.settings", "Every option setting gives valid rates or is refused.", settings_are_valid},
  };
}

}  // namespace strata::conformance
