// Runs the variants of a comparison and measures them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/compare/comparison.hpp"
#include "tools/compare/variant_runs.hpp"

namespace strata::compare {

struct MeasureOptions {
  int nproc = 0;  // ranks; 0: one process
  bool oversubscribe = false;
  bool thorough = false;
  std::optional<int> rounds;                 // if given, measures in rounds without --thorough too
  std::optional<std::int64_t> steps;         // timed steps of a run; empty: chosen by time
  std::optional<std::int64_t> warmup_steps;  // empty: chosen with the steps
  std::optional<double> tolerance;           // empty: the largest that the variants' precision plugins declare, or 1e-5
  bool apart = false;
  bool quiet = false;
};

// Compares the variants. First every variant trains once to record losses, gradient norms and gradient digests per
// step. Then the variants are timed: step by step in turn (run_in_turns.hpp), if they fit in memory together, otherwise
// one after the other, as with `apart`. A first look times each once. Otherwise each is timed twice in every round, in
// forward and in reverse order; the runs of the baseline and of a variant in one half of a round form a pair, and
// paired_ratio.hpp defines when they differ. Checks every variant before any runs, and reports on standard error the
// work in progress and its expected duration. Throws UserError for a variant that cannot run here, EnvironmentError
// with the last lines of a failed run.
Comparison measure(const std::vector<ComparedRun>& runs, const MeasureOptions& options);

}  // namespace strata::compare
