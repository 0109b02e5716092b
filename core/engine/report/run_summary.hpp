// What a run says of itself, for programs and for people.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/rank_usage.hpp"
#include "report/step_record.hpp"

namespace strata::report {

struct RunSummary {
  std::int64_t first_step = 0;  // of this run, from 0: the steps made before
  std::int64_t steps_done = 0;  // of the whole training, earlier runs' included
  std::int64_t steps = 0;       // of this run, and so of all lists below
  std::int64_t skipped = 0;
  std::int64_t made_again = 0;    // updates of a speculative run
  std::int64_t warmup_steps = 0;  // left out of the timings
  double median_step_s = 0.0;
  std::optional<double> predicted_step_s;  // where `offload: auto` chose the homes
  double tokens_per_s = 0.0;               // of the whole run, by the median step
  int stopped_by = 0;                      // the signal that ended the run before its last step, or 0
  std::string saved_in;                    // the last checkpoint of this run, or empty
  std::vector<double> losses;
  std::vector<double> auxiliary_losses;  // empty where no layer has one
  std::vector<double> step_seconds;
  std::optional<StepValidation> last_validation;
  std::optional<StepValidation> best_validation;  // of the smallest loss, the first of equals
  runtime::TensorTimes tensor;                    // rank 0's, of all steps
  std::vector<RankUsage> ranks;
  std::map<std::string, runtime::Metric> metrics;  // rank 0's plugins, at the end
  std::map<std::string, std::string> setup;        // plugin slot -> name, and sizes: what was run
};

double median(std::vector<double> values);
// "optimizer", or "optimizer (host)" for another tier than the device.
std::string memory_name(Category category, Tier tier);
// {"device": {"parameter": bytes, ...}, ...}: cells that are zero are left out.
nlohmann::json to_json(const Ledger::Table& table);
nlohmann::json to_json(const ValidationResult& validation);
// Steps count from 1.
nlohmann::json to_json(const StepRecord& record);
nlohmann::json to_json(const RunSummary& summary);
// For people: a few aligned lines, peak bytes by category and rank; of more than eight ranks the least and the most.
std::string summary_table(const RunSummary& summary);

}  // namespace strata::report
