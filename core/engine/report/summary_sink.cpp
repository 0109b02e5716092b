#include "report/summary_sink.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "text/json.hpp"

namespace strata::report {

namespace {

bool is_summary(const std::string& content) {
  try {
    return text::JsonDocument(content, {}).object().json().value("event", nlohmann::json()) == "summary";
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

SummarySink::SummarySink(const std::string& path, std::ostream* table, std::int64_t warmup_steps,
                         const config::RunConfig& config)
    : file_("--summary", path), table_(table), warmup_steps_(warmup_steps), config_(config) {
  constexpr std::size_t largest = std::size_t{256} << 20;
  if (file_.size() > 0 && !is_summary(file_.beginning(largest))) file_.refuse_content("the summary of a run");
}

void SummarySink::write(const StepRecord& record) {
  ++summary_.steps;
  summary_.losses.push_back(record.outcome.loss);
  if (record.outcome.auxiliary_loss) summary_.auxiliary_losses.push_back(*record.outcome.auxiliary_loss);
  summary_.step_seconds.push_back(record.step_s);
  summary_.tensor.add(record.outcome.times.tensor);
  if (!record.applied) ++summary_.skipped;
  if (record.outcome.made_again) ++summary_.made_again;
  if (record.validation) write(StepValidation{record.step, *record.validation});
}

void SummarySink::write(const StepValidation& validation) {
  summary_.last_validation = validation;
  const std::optional<StepValidation>& best = summary_.best_validation;
  if (!best || !std::isfinite(best->result.loss) || validation.result.loss < best->result.loss)
    summary_.best_validation = validation;
}

void SummarySink::finish(const RunEnd& end) {
  summary_.steps_done = end.steps_done;
  summary_.stopped_by = end.stopped_by;
  summary_.saved_in = end.saved_in;
  summary_.predicted_step_s = end.predicted_step_s;
  summary_.ranks = end.ranks;
  summary_.metrics = end.metrics;
  summary_.warmup_steps = summary_.steps > warmup_steps_ ? warmup_steps_ : 0;
  summary_.median_step_s = median({summary_.step_seconds.begin() + summary_.warmup_steps, summary_.step_seconds.end()});
  if (summary_.median_step_s > 0.0)
    summary_.tokens_per_s =
        static_cast<double>(config_.train.global_batch * config_.model.seq_len) / summary_.median_step_s;
  for (const config::PluginChoice* choice : config_.plugins()) summary_.setup[choice->slot] = choice->name;
  summary_.setup["world_size"] = std::to_string(config_.world_size);
  summary_.setup["global_batch"] = std::to_string(config_.train.global_batch);
  if (file_.is_open()) {
    file_.clear();
    file_.write(to_json(summary_).dump() + "\n");
  }
  if (table_ != nullptr) *table_ << summary_table(summary_) << std::flush;
}

}  // namespace strata::report
