// What a run says of itself: one record a step, and one summary.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "step/executor.hpp"
#include "step/plugin_set.hpp"

namespace strata::report {

// One rank's memory and traffic, as plain numbers that can travel.
struct RankUsage {
  Ledger ledger;
  std::int64_t resident = 0;       // bytes, now
  std::int64_t peak_resident = 0;  // bytes
  std::int64_t processor = 0;      // microseconds of the process, all its threads, since the run began
  std::int64_t elapsed = 0;        // microseconds since then
  std::int64_t sent = 0;           // logical bytes this rank has sent since the run began, all groups
  std::vector<std::int64_t> sent_by_collective;

  static constexpr int length = 2 * category_count * tier_count + tier_count + 5 + collective_count;
  std::vector<std::int64_t> pack() const;
  static RankUsage unpack(const std::int64_t* numbers);
};

// The mean loss over validation samples.
struct ValidationResult {
  double loss = 0.0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;  // that count
  double seconds = 0.0;
  double perplexity() const;  // e^loss
};

struct StepValidation {
  std::int64_t step = 0;  // after this one
  ValidationResult result;
};

struct StepRecord {
  std::int64_t step = 0;  // from 0
  runtime::StepOutcome outcome;
  double learning_rate = 0.0;
  double step_s = 0.0;
  double data_s = 0.0;
  double tokens_per_s = 0.0;
  bool applied = true;
  std::vector<std::string> non_finite;  // parameters whose gradients were not finite, the nearest to the loss first
  std::vector<runtime::ParameterDigest> gradients;  // only where it was asked for
  std::optional<ValidationResult> validation;       // after this step's update, where one was due
  std::vector<RankUsage> ranks;                     // by rank; only where it was asked for
  std::map<std::string, runtime::Metric> metrics;   // rank 0's plugins
};

struct RunSummary {
  std::int64_t first_step = 0;  // where a resumed run went on; 0 for a fresh one
  std::int64_t steps_done = 0;  // of the whole training, earlier runs' included
  std::int64_t steps = 0;       // of this run, and so of all lists below
  std::int64_t skipped = 0;
  std::int64_t warmup_steps = 0;  // left out of the timings
  double median_step_s = 0.0;
  double tokens_per_s = 0.0;  // of the whole run, by the median step
  int stopped_by = 0;         // the signal that ended the run before its last step, or 0
  std::string saved_in;       // the last checkpoint of this run, or empty
  std::vector<double> losses;
  std::vector<double> step_seconds;
  std::optional<StepValidation> last_validation;
  std::optional<StepValidation> best_validation;  // of the smallest loss, the first of equals
  std::vector<RankUsage> ranks;
  std::map<std::string, runtime::Metric> metrics;  // rank 0's plugins, at the end
  std::map<std::string, std::string> setup;        // plugin slot -> name, and sizes: what was run
};

// "a, b, c, d and 25 more"
std::string first_of(const std::vector<std::string>& names, std::size_t most = 4);

double median(std::vector<double> values);
nlohmann::json to_json(const ValidationResult& validation);
nlohmann::json to_json(const StepRecord& record);
nlohmann::json to_json(const RunSummary& summary);
// For people: a few aligned lines, peak bytes by category and rank; of more than eight ranks the least and the most.
std::string summary_table(const RunSummary& summary);

}  // namespace strata::report
