// The results of `strata compare` and their table.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/table.hpp"

namespace strata::compare {

// A parameter's gradient digest in one step, see report/gradient_digest.hpp. NaN if it was not finite.
struct GradientSums {
  double projection = 0.0;
  double norm = 0.0;
};

// Promise declared by the plugins of a variant and of the baseline.
struct Promise {
  double bound = 0.0;        // bound of the relative difference between their numbers; 0: equal bits
  std::string text;          // "partitioner/mine declares reassociation"
  bool of_gradients = true;  // also holds for gradients of parameters; tolerance(b) covers only losses and norms
};

// One variant and the results of its runs.
struct ComparedVariant {
  std::string name;
  std::string config;                 // config file
  std::vector<std::string> settings;  // KEY=VALUE: settings of the command line, then the variant's own
  nlohmann::json summary;             // of the recorded run, as `strata train --summary` writes it
  std::vector<double> losses;         // of the recorded run, by step; NaN if not finite
  std::vector<double> norms;
  std::vector<std::map<std::string, GradientSums>> gradients;  // by step and parameter
  std::vector<double> step_seconds;                            // median of each timed run, in the order of the runs
  std::vector<std::vector<double>> resident;                   // of the recorded run, by step and rank: bytes
  std::optional<Promise> promise;  // promise relative to the baseline; empty if they train differently
  // Ratios of each timed run to the first variant's in the same round, if timed step by step in turn.
  std::vector<double> ratios;
};

// First difference of a variant's numbers from the baseline's.
struct Difference {
  bool equal_bits = true;
  double largest = 0.0;             // largest relative difference of losses and norms
  std::optional<std::size_t> step;  // the first step, from 0, that differs by more than the tolerance
  std::string parameter;            // parameter whose gradient differs, by `largest_gradient` x its norm; may be empty
  double largest_gradient = 0.0;
};

// Place and time of a comparison, for readers elsewhere.
struct Provenance {
  std::string strata;   // "0.1.0, commit 1a2b3c4d, libtorch 2.11.0"
  std::string date;     // begin: "2026-01-31 12:00 UTC"
  std::string command;  // for a shell
  std::string machine;  // "AMD EPYC 9654, 16 cores, 126.0 GiB, Linux 6.1"
};

struct Comparison {
  std::vector<ComparedVariant> variants;  // the first is the baseline
  Provenance provenance;
  std::int64_t steps = 0;  // timed steps per run
  std::int64_t warmup_steps = 0;
  double tolerance = 0.0;
  std::string apart;  // reason why the runs of a round were timed one after the other; empty: step by step in turn
  int pairs() const { return static_cast<int>(variants.front().step_seconds.size()); }  // number of timed runs
};

// [Note: when gradients part] Weights are equal before the first step, so there a parameter's digest that differs by
// more than the tolerance means a different gradient. Later, weights and therefore all gradients drift apart by
// rounding; then a parameter counts only if it differs by more than the tolerance and by more than a hundred times the
// median over parameters. It does not count where the variant's plugins promise nothing of gradients.
Difference difference(const ComparedVariant& variant, const ComparedVariant& baseline, double tolerance);

// True if a variant's numbers break its promise: different bits; a difference above the bound between gradients of
// equal weights; or one above a hundred times the bound later, when the weights have drifted apart.
bool breaks_promise(const ComparedVariant& variant, const ComparedVariant& baseline);

// Returns the bytes by which the resident memory of a rank grows per step, for the rank that grows most; 0 if it does
// not grow steadily, or if too few steps were recorded. The first 50 steps are excluded, because allocators and caches
// fill in them.
double growth_of_memory(const ComparedVariant& variant);

// Returns names and texts that describe the runs, for the page: first those shared by all variants, then each variant's
// config, layout and settings.
std::vector<std::pair<std::string, std::string>> account_of_runs(const Comparison& comparison);

// Returns one or two sentences on how the times were measured, for below the table.
std::string account_of_times(const Comparison& comparison);

// Returns "equal bits", "equal to 1.2e-07", "differ from step 3, by up to 1.0e-02", or "the gradient of NAME differs
// from step 1 ...".
std::string to_string(const Difference& difference);

// Returns the peak of the rank that holds the most, over all tiers.
double peak_bytes(const ComparedVariant& variant);

// Returns the table: one column per variant and one line per quantity; Csv: one line per variant, numbers without
// units.
text::Table comparison_table(const Comparison& comparison, text::TableFormat format);

nlohmann::json to_json(const Comparison& comparison);

}  // namespace strata::compare
