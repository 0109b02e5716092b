// Figures of steps and validations.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/gradient_digest.hpp"
#include "report/rank_usage.hpp"
#include "stage/plugin_set.hpp"
#include "step/executor.hpp"

namespace strata::report {

// Figures over validation samples.
struct ValidationResult : stage::ForwardFigures {
  std::int64_t samples = 0;
  double seconds = 0.0;
  double perplexity() const { return std::exp(loss); }
};

struct StepValidation {
  std::int64_t step = 0;  // number from 0 of the step before the validation
  ValidationResult result;
};

struct StepRecord {
  std::int64_t step = 0;  // number from 0; texts and files of a run count from 1
  step::StepOutcome outcome;
  double learning_rate = 0.0;
  double step_s = 0.0;
  double data_s = 0.0;
  double tokens_per_s = 0.0;
  bool applied = true;
  std::vector<std::string> non_finite;           // parameters whose gradients were not finite, the last layer's first
  std::optional<ValidationResult> validation;    // validation after this step's update, if due
  std::map<std::string, stage::Metric> metrics;  // metrics of rank 0's plugins
  std::vector<RankUsage> ranks;                  // empty unless a sink records the usage of each step
  std::vector<ParameterDigest> gradients;        // empty unless ReportSettings::digests
};

}  // namespace strata::report
