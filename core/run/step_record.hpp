// What a run says of each step.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "step/executor.hpp"
#include "step/plugin_set.hpp"

namespace strata::report {

// One rank's memory and traffic. Made of std::int64_t only: it travels as such numbers.
struct RankUsage {
  Ledger ledger;
  std::int64_t resident = 0;       // bytes, now
  std::int64_t peak_resident = 0;  // bytes
  std::int64_t processor = 0;      // microseconds of the process, all its threads, since the run began
  std::int64_t elapsed = 0;        // microseconds since then
  std::int64_t sent = 0;           // logical bytes this rank has sent since the run began, all groups
  std::array<std::int64_t, collective_count> sent_by_collective{};
};
static_assert(std::is_trivially_copyable_v<RankUsage> && std::has_unique_object_representations_v<RankUsage>);

// The mean losses over validation samples.
struct ValidationResult : runtime::MeanLosses {
  std::int64_t samples = 0;
  double seconds = 0.0;
  double perplexity() const { return std::exp(loss); }
};

struct StepRecord {
  std::int64_t step = 0;  // from 0
  runtime::StepOutcome outcome;
  double learning_rate = 0.0;
  double step_s = 0.0;
  double data_s = 0.0;
  double tokens_per_s = 0.0;
  bool applied = true;
  std::vector<std::string> non_finite;  // parameters whose gradients were not finite, the last layer's first
  std::vector<runtime::ParameterDigest> gradients;  // only where it was asked for
  std::optional<ValidationResult> validation;       // after this step's update, where one was due
  std::vector<RankUsage> ranks;                     // by rank; only where it was asked for
  std::map<std::string, runtime::Metric> metrics;   // rank 0's plugins
};

}  // namespace strata::report
