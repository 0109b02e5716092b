// What every rank did in some steps, instruction by instruction: `strata train --trace`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report/report_file.hpp"
#include "run/training.hpp"

namespace strata::cli {

// Writes a file in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open and `strata trace` reads: a
// track for each rank, an event for each instruction. All ranks' clocks are one on one host. Ranks of other hosts are
// moved so that the first step's gradient norm, for which all ranks meet, ends at the same time on all.
class StepTrace final : public run::TrainingObserver {
 public:
  // Rank 0 opens the file; an empty name: nothing is traced. Throws UserError when it cannot be opened, or holds
  // something else than an earlier trace.
  StepTrace(const std::string& file, int rank);

  // Traces `steps` steps after `skipped` ones from now, or from now on where the run makes no more than `skipped`.
  void begin(run::Run& run, std::int64_t skipped, std::int64_t steps);
  const report::ReportFile& file() const { return file_; }
  void before_step(run::Run& run) override;
  // After the last of the steps writes the file. Throws EnvironmentError when writing fails. [collective]
  void after_step(run::Run& run, const report::StepRecord& record) override;
  // Writes it if the run ended before. [collective]
  void finish(run::Run& run);

 private:
  struct Event {
    std::int64_t step = 0;
    program::Instruction instruction;
    step::InstructionTimes times;
  };
  struct RankEvents {
    std::int64_t stage = 0;
    bool same_clock = true;  // as rank 0
    std::vector<Event> events;
  };
  void leave_out_forgotten();
  std::vector<RankEvents> of_ranks(run::Run& run) const;
  void write(run::Run& run);

  report::ReportFile file_;  // rank 0's
  bool traces_;
  std::int64_t first_ = 0;
  std::int64_t end_ = 0;
  std::vector<Event> events_;
};

}  // namespace strata::cli
