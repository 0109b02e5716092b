#pragma once
#include <string>

namespace strata::cli {

// During its lifetime, the first SIGINT or SIGTERM (also SIGHUP, unless it was ignored before, as under nohup) only
// requests the end of the run; a second one has its usual effect and ends the process. Signals within half a second of
// the first count as the same request, because a terminal and a launcher may both send one. Signals are caught in the
// whole process, for any thread; a signal mask would only cover threads created after it. At most one instance per
// process.
class StopSignals {
 public:
  // Acknowledgement of the first signal on standard error, because steps may be long. FreshLine: on a line of its own,
  // after an unfinished progress bar.
  enum class Answer { None, Line, FreshLine };
  static const char* text_of(Answer how);
  explicit StopSignals(Answer how);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // Returns the signal that requested the end of the run, or 0. [any thread]
  static int requested();
};

// Returns "SIGINT".
std::string signal_name(int number);

}  // namespace strata::cli
