// Several runs on one machine, of which only one computes at a time: each makes a step and waits while the others make
// theirs. What is measured within such a turn meets the same machine, however its speed changes from second to second.
//
// Two pipes tie a run to who gives the turns. Every rank writes a byte to `arrivals` when it stands before a step and
// reads one from `turns` to begin it. No rank can take the turn of another: none stands before its next step until all
// have ended this one.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

// A rank's end.
class Turn {
 public:
  // `pipes` is what RunInTurns gave for --turns: "TURNS,ARRIVALS", two open descriptors; empty: every turn is this
  // rank's at once. Throws UserError for any other text.
  explicit Turn(const std::string& pipes);
  // Blocks until it is this run's turn, or `stop_requested` gives a signal. Throws EnvironmentError when nobody gives
  // turns any more.
  void wait(const std::function<int()>& stop_requested) const;

 private:
  int turns_ = -1;
  int arrivals_ = -1;
};

// The other end: one run, of `ranks` ranks.
class RunInTurns {
 public:
  // Starts this program with `words` and the option --turns; what it prints goes to the file `output`. With 0 ranks it
  // gets no such option and goes through at once. From here on this process ignores SIGPIPE: a run that has died is
  // told by its status. Throws EnvironmentError.
  RunInTurns(std::vector<std::string> words, const std::string& output, int ranks);
  // Ends it when it has not ended.
  ~RunInTurns();
  RunInTurns(RunInTurns&& other) noexcept;
  RunInTurns& operator=(RunInTurns&&) = delete;

  // Blocks until all ranks stand before a step; false when the run has ended instead.
  bool stands_before_step();
  // Gives it the turn: one step.
  void go();
  // Blocks until the run has ended; its exit status, or 128 and the signal that ended it.
  int finish();

 private:
  int ranks_;
  int turns_ = -1;
  int arrivals_ = -1;
  int process_ = -1;
};

}  // namespace strata::cli
