#include "tools/compare/measure.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>

#include "plan/dry_run.hpp"
#include "plan/memory_budget.hpp"
#include "resolve/resolve_run.hpp"
#include "text/formatted.hpp"
#include "text/size.hpp"
#include "text/terminal_output.hpp"
#include "tools/compare/promise.hpp"

namespace strata::compare {

namespace {

constexpr double fp32_tolerance = 1e-5;

// How much is run where the command line leaves it open.
struct Amount {
  std::int64_t warmup_steps;
  std::int64_t recorded_steps;            // after the warm-up
  std::int64_t fewest_steps, most_steps;  // timed, of each run
  double seconds;                         // that the timed steps of a run take, of all variants together
};
// Starting a run takes a second or more, so many short steps hardly add time.
constexpr Amount thorough_amount{3, 20, 20, 60, 2.0};
// One run of each variant: whoever tries something waits for it.
constexpr Amount first_look_amount{1, 4, 3, 60, 8.0};
constexpr int thorough_rounds = 8;

struct Checked {
  resolve::ResolvedRun run;
  double tolerance = 0.0;      // tolerance that the precision plugin declares
  std::int64_t needed = 0;     // bytes of the rank that needs the most
  std::int64_t available = 0;  // for one rank
};

Checked check(const ComparedRun& compared, int nproc) {
  Checked checked;
  checked.run = resolve::read_run(compared.config, compared.settings, config::World::started_here(std::max(1, nproc)));
  const resolve::ResolvedRun& prepared = checked.run;
  plan::check_run(prepared.config, *prepared.registry);
  const config::PluginChoice& precision = prepared.config.precision;
  checked.tolerance =
      plugins::equivalence_of(prepared.registry->find(PluginKind::PrecisionPolicy, precision.plugin).manifest,
                              precision.options)
          .bound;
  for (const int rank : plan::planned_ranks(prepared.config))
    checked.needed = std::max(checked.needed, plan::dry_run(prepared.config, *prepared.registry, rank).needed);
  checked.available = plan::memory_budget(prepared.config, 0, *prepared.registry, std::max(1, nproc)).bytes;
  return checked;
}

std::string duration(double seconds) {
  return seconds < 90.0 ? text::formatted("%.0f s", seconds) : text::formatted("%.0f minutes", seconds / 60.0);
}

class Measuring {
 public:
  Measuring(const std::vector<ComparedRun>& runs, const MeasureOptions& options)
      : options_(options),
        runs_(runs),
        amount_(options.thorough || options.rounds ? thorough_amount : first_look_amount),
        warmup_steps_(options.warmup_steps.value_or(amount_.warmup_steps)),
        variant_runs_(options.nproc, options.oversubscribe, warmup_steps_) {}

  Comparison run() {
    Comparison comparison;
    comparison.warmup_steps = warmup_steps_;
    double declared = fp32_tolerance;
    std::vector<Checked> all;
    for (const ComparedRun& run : runs_) {
      const Checked& checked = all.emplace_back(check(run, options_.nproc));
      declared = std::max(declared, checked.tolerance);
      needed_ += checked.needed;
      available_ = checked.available;
    }
    comparison.tolerance = options_.tolerance.value_or(declared);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      ComparedVariant& variant = comparison.variants.emplace_back();
      variant.name = runs_[i].name;
      variant.config = runs_[i].config;
      variant.settings = runs_[i].settings;
      if (i > 0) variant.promise = promise(all[i].run, all[0].run, declared);
    }
    record(comparison);
    comparison.apart = why_apart();
    const int turns = turns_of_the_timing();
    for (int turn = 0; turn < turns; ++turn) time(turn, turns, comparison);
    if (!options_.quiet && isatty(STDERR_FILENO) == 1) std::cerr << text::clear_line << std::flush;
    return comparison;
  }

 private:
  int turns_of_the_timing() const {
    if (options_.rounds) return 2 * *options_.rounds;
    return options_.thorough ? 2 * thorough_rounds : 1;
  }

  void record(Comparison& comparison) {
    using Clock = std::chrono::steady_clock;
    double step_of_all = 0.0, start_of_all = 0.0;  // seconds
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      say("numbers", runs_[i].name);
      const std::int64_t steps = options_.steps.value_or(amount_.recorded_steps);
      const Clock::time_point begin = Clock::now();
      variant_runs_.record(runs_[i], steps, comparison.variants[i]);
      const double step = comparison.variants[i].summary.at("median_step_s");
      step_of_all += step;
      start_of_all += std::max(0.0, std::chrono::duration<double>(Clock::now() - begin).count() -
                                        step * static_cast<double>(steps + warmup_steps_));
    }
    const double fitting = std::min(1e6, amount_.seconds / std::max(step_of_all, 1e-6));
    comparison.steps = options_.steps.value_or(
        std::clamp(static_cast<std::int64_t>(fitting), amount_.fewest_steps, amount_.most_steps));
    const double turn = start_of_all + step_of_all * static_cast<double>(comparison.steps + warmup_steps_);
    expected_ = duration(turns_of_the_timing() * turn);
  }

  // Runs that take turns are all in memory at the same time.
  std::string why_apart() const {
    if (options_.apart) return "--apart";
    if (needed_ <= available_) return "";
    return "all together need " + text::format_bytes(needed_) + " of memory per rank, " +
           text::format_bytes(available_) + " are free";
  }

  void time(int turn, int turns, Comparison& comparison) {
    const bool backwards = turn % 2 == 1;
    const std::string part =
        turns == 1 ? "speed, about " + expected_
                   : text::formatted("round %d of %d, about ", turn / 2 + 1, turns / 2) + expected_ + " in all";
    if (comparison.apart.empty()) {
      if (!backwards) say(part, "variants in turn");
      return variant_runs_.time_together(runs_, comparison.steps, backwards, comparison.variants);
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::size_t index = backwards ? runs_.size() - 1 - i : i;
      say(part, runs_[index].name);
      variant_runs_.time(runs_[index], comparison.steps, comparison.variants[index]);
    }
  }

  void say(const std::string& what, const std::string& name) const {
    if (options_.quiet) return;
    if (isatty(STDERR_FILENO) == 1)
      std::cerr << text::clear_line << what << ": " << name << std::flush;
    else
      std::cerr << what << ": " << name << "\n";
  }

  const MeasureOptions& options_;
  const std::vector<ComparedRun>& runs_;
  const Amount amount_;
  const std::int64_t warmup_steps_;
  VariantRuns variant_runs_;
  std::string expected_;        // how long all timed runs take
  std::int64_t needed_ = 0;     // bytes per rank, of all variants together
  std::int64_t available_ = 0;  // per rank
};

}  // namespace

Comparison measure(const std::vector<ComparedRun>& runs, const MeasureOptions& options) {
  return Measuring(runs, options).run();
}

}  // namespace strata::compare
