// Summary of a run, and figures as JSON for programs and as a table for people.
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
  std::int64_t first_step = 0;  // number from 0 of this run's first step
  std::int64_t steps_done = 0;  // number of steps, including those of earlier runs
  std::int64_t steps = 0;       // number of this run's steps, the length of the lists below
  std::int64_t skipped = 0;
  std::int64_t made_again = 0;    // updates of a speculative run
  std::int64_t warmup_steps = 0;  // number of first steps excluded from the timings
  double median_step_s = 0.0;
  std::optional<double> predicted_step_s;  // prediction of `offload: auto`
  double tokens_per_s = 0.0;               // tokens per second of all ranks at the median step
  int stopped_by = 0;                      // signal that ended the run before its last step, or 0
  std::string saved_in;                    // folder of this run's last checkpoint, or empty
  std::vector<double> losses;
  std::vector<double> auxiliary_losses;  // empty if no layer has one
  std::vector<double> step_seconds;
  std::optional<StepValidation> last_validation;
  std::optional<StepValidation> best_validation;  // validation with the smallest loss, the first of equals
  stage::TensorTimes tensor;                      // rank 0's waits in all steps
  std::vector<RankUsage> ranks;
  std::map<std::string, stage::Metric> metrics;  // metrics of rank 0's plugins at the end
  std::map<std::string, std::string> setup;      // plugin slot to plugin name, and sizes of the run
};

double median(std::vector<double> values);
// Returns "optimizer", or "optimizer (host)" for another tier than the device.
std::string memory_name(Category category, Tier tier);
// Returns {"device": {"parameter": bytes, ...}, ...}, without cells that are zero.
nlohmann::json to_json(const Ledger::Table& table);
nlohmann::json to_json(const ValidationResult& validation);
// Returns one line of metrics; steps count from 1.
nlohmann::json to_json(const StepRecord& record);
nlohmann::json to_json(const RunSummary& summary);
// Returns a few aligned lines, with peak bytes by category and rank; of more than eight ranks, the least and the most.
std::string summary_table(const RunSummary& summary);

}  // namespace strata::report
