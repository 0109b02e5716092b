#pragma once
#include <string>

namespace strata::cli {

// While one of these lives, the first SIGINT or SIGTERM (SIGHUP too, unless it was ignored before, as under nohup) only
// notes that the run is to stop; a second one has its usual effect and ends the process at once. What arrives within
// half a second of the first is taken for the same request: a terminal and a launcher may both pass one on. Signals are
// caught in the whole process, whichever thread takes one and whoever made it; a mask would hold them back from the
// threads made after it only. One at a time in a process.
class StopSignals {
 public:
  // How the first signal is answered on standard error, for steps may be long. FreshLine: on a line of its own, as a
  // bar stands on the one under way.
  enum class Answer { None, Line, FreshLine };
  static const char* text_of(Answer how);
  explicit StopSignals(Answer how);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // The signal that asked the run to stop, or 0. [any thread]
  static int requested();
};

// "SIGINT"
std::string signal_name(int number);

}  // namespace strata::cli
