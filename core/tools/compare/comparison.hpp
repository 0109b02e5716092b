// What `strata compare` knows of its variants, and the table of it.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/table.hpp"

namespace strata::report {

// A parameter's digest in one step, see step/gradient_digest.hpp. NaN where it was not finite.
struct GradientSums {
  double projection = 0.0;
  double norm = 0.0;
};

// One choice of each varied key, and what its runs left behind.
struct ComparedVariant {
  std::string name;
  nlohmann::json summary;      // of the recorded run, as `strata train --summary` writes it
  std::vector<double> losses;  // of the recorded run, by step; NaN where not finite
  std::vector<double> norms;
  std::vector<std::map<std::string, GradientSums>> gradients;  // by step and parameter
  std::vector<double> step_seconds;                            // the median of each timed run, in the order of the runs
  std::vector<double> ratios;  // of each timed run to the first variant's of the same round, where both were timed step
                               // by step in turns
};

// Where a variant's numbers part from the baseline's.
struct Difference {
  bool equal_bits = true;
  double largest = 0.0;             // of losses and norms, relative
  std::optional<std::size_t> step;  // the first step, from 0, in which they are further apart than the tolerance
  std::string parameter;            // where it is the gradient of this one, by `largest_gradient` of its norm
  double largest_gradient = 0.0;
};

struct Comparison {
  std::vector<ComparedVariant> variants;  // the first is the baseline
  std::int64_t steps = 0;                 // timed, of one run
  std::int64_t warmup_steps = 0;
  double tolerance = 0.0;
  std::string apart;  // why the runs of a round were timed one after the other, and not step by step in turns; empty
                      // where they were not
  int pairs() const { return static_cast<int>(variants.front().step_seconds.size()); }  // of timed runs
};

// [Note: when gradients part]
// Weights are equal before the first step, so there a parameter's digest that is off by more than the tolerance says
// that the gradient is another one. Later, weights have drifted apart by rounding, and all gradients with them; then a
// parameter counts only when it is off by more than the tolerance and by a hundred times what the middle one is off by.
Difference difference(const ComparedVariant& variant, const ComparedVariant& baseline, double tolerance);

// How the times came about, in a sentence or two that stand below the table.
std::string account_of_times(const Comparison& comparison);

// "equal bits", "equal to 1.2e-07", "losses part at step 3, by up to 1.0e-02", "the gradient of NAME parts at step 1
// ...".
std::string to_string(const Difference& difference);

// People get one column a variant and one line a quantity; spreadsheets (Csv) one line a variant, numbers without
// units.
Table comparison_table(const Comparison& comparison, TableFormat format);

nlohmann::json to_json(const Comparison& comparison);

}  // namespace strata::report
