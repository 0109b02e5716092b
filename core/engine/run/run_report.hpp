// Reports of a run: passes the figures of each step to the sinks of the config, of the command and of the program.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/gradient_digest.hpp"
#include "report/open_sinks.hpp"
#include "run/training.hpp"

namespace strata::run {

// The path from a step to files, lines and observers, for `strata train` and for <strata/engine.hpp>.
class RunReport final : public TrainingObserver {
 public:
  // Opens the sinks on rank 0, without a change to files. `config` must outlive the report. Throws UserError.
  RunReport(const report::ReportSettings& settings, const config::RunConfig& config, int rank);

  // Adds a sink of this rank.
  void add(std::unique_ptr<report::MetricSink> sink) { sinks_.push_back(std::move(sink)); }
  // Throws UserError if a sink's file and `other` are one.
  void check_apart(const report::ReportFile& other) const;
  // Returns the error text for figures of an earlier run; empty: none. `resume`: how to continue that run.
  std::string earlier_run(const std::string& resume) const;

  // Called right before the first step, when nothing can be refused any more. Starts the measurement of memory and
  // processor time if a sink records it.
  void begin(Run& run);
  bool has_begun() const { return has_begun_; }
  void validating(std::int64_t done, std::int64_t samples) override;
  void after_step(Run& run, const report::StepRecord& record) override;
  // Reports a validation after the last step that is not part of its record.
  void after_validation(const Run& run, const report::ValidationResult& result);
  // Collects the state of the run after its last step; `saved_in`: folder of the last checkpoint, or empty.
  // [collective]
  void end(Run& run, const std::string& saved_in, std::optional<double> predicted_step_s);
  // Completes the sinks, after end() and the run's exports.
  void finish();

 private:
  std::vector<report::ParameterDigest> take_digests(step::Session& session);

  const report::ReportSettings settings_;
  std::vector<std::unique_ptr<report::MetricSink>> sinks_;
  std::optional<report::UsageMeter> meter_;       // empty if no sink records usage
  std::optional<report::GradientDigest> digest_;  // empty unless ReportSettings::digests
  bool has_begun_ = false;
  report::RunEnd end_;
};

}  // namespace strata::run
