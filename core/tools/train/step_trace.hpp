// `strata train --trace`: records every instruction of each rank in some steps.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report/report_file.hpp"
#include "run/training.hpp"

namespace strata::cli {

// Writes a file in the Trace Event Format, for ui.perfetto.dev, chrome://tracing and `strata trace`: a track per rank,
// an event per instruction. Ranks of one host share a clock. Times of other hosts are shifted so that the first step's
// gradient norm, for which all ranks meet, ends at the same time everywhere.
class StepTrace final : public run::TrainingObserver {
 public:
  // Opens the file on rank 0; without a name nothing is traced. Throws UserError if it cannot be opened, or contains
  // something other than an earlier trace.
  StepTrace(const std::string& file, int rank);

  // Traces `steps` steps after `skipped` ones; from now on if the run has no more than `skipped`.
  void begin(run::Run& run, std::int64_t skipped, std::int64_t steps);
  const report::ReportFile& file() const { return file_; }
  void before_step(run::Run& run)
      override;  // Writes the file after the last traced step. Throws EnvironmentError if writing fails. [collective]
  void after_step(run::Run& run,
                  const report::StepRecord& record) override;  // Writes the file if the run ended earlier. [collective]
  void finish(run::Run& run);

 private:
  struct Event {
    std::int64_t step = 0;
    program::Instruction instruction;
    step::InstructionTimes times;
  };
  struct RankEvents {
    std::int64_t stage = 0;
    bool same_clock = true;  // true: same clock as rank 0
    std::vector<Event> events;
  };
  void leave_out_forgotten();
  std::vector<RankEvents> of_ranks(run::Run& run) const;
  void write(run::Run& run);

  report::ReportFile file_;  // on rank 0

  bool traces_;
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
  std::vector<Event> events_;
};

}  // namespace strata::cli
