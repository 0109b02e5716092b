#pragma once
#include <chrono>
#include <cstdint>
#include <ostream>

#include "run/step_record.hpp"

namespace strata::report {

// Tells a person how a run goes: one line that is rewritten on a terminal; elsewhere plain lines every `every` steps,
// and one after ten seconds of steps without, so that a log shows that the run lives.
class Progress {
 public:
  // `first_step` is where the run begins: not 0 for a resumed one.
  Progress(std::ostream& out, bool terminal, std::int64_t steps, std::int64_t every, std::int64_t first_step = 0);
  void show(const StepRecord& record);
  // A validation under way; elsewhere than on a terminal a line every ten seconds.
  void validating(std::int64_t done, std::int64_t samples);
  // Ends the line under way, so that what follows begins on a fresh one.
  void finish();

 private:
  std::ostream& out_;
  bool terminal_;
  std::int64_t steps_;
  std::int64_t every_;
  std::int64_t first_step_;
  double seconds_ = 0.0;  // of the steps shown, the first left out: it allocates
  std::int64_t timed_ = 0;
  double unsaid_ = 0.0;  // seconds of the steps since the last line
  bool open_ = false;
  std::chrono::steady_clock::time_point said_;  // when `validating` last wrote a line
};

}  // namespace strata::report
