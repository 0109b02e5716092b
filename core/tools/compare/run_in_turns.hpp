// Runs on one machine that alternate: one run makes a step while the others wait, so all runs are measured at nearly
// the same time even if the machine's speed changes from second to second. See tools/train/turn.hpp for the connection.
#pragma once
#include <string>
#include <vector>

namespace strata::compare {

// One run of `ranks` ranks.
class RunInTurns {
 public:
  // Starts `strata` with `words` and the option --turns; its output goes to the file `output`. With 0 ranks the run
  // gets no such option and does not wait. From here on this process ignores SIGPIPE; the exit status reveals a run
  // that died. Throws EnvironmentError.
  RunInTurns(std::vector<std::string> words, const std::string& output, int ranks);
  // Kills the run if it has not ended.
  ~RunInTurns();
  RunInTurns(RunInTurns&& other) noexcept;
  RunInTurns& operator=(RunInTurns&&) = delete;

  // Blocks until all ranks are ready for a step; returns false if the run has ended instead.
  bool stands_before_step();
  // Lets the run make one step.
  void go();
  // Blocks until the run has ended; returns its exit status, or 128 + signal.
  int finish();

 private:
  int ranks_;
  int turns_ = -1;
  int arrivals_ = -1;
  int process_ = -1;
};

}  // namespace strata::compare
