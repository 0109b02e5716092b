#pragma once
#include <string>

namespace strata::conformance {

// Crashed: the process of the case died, or ended without saying how the case went. TimedOut: it was still running at
// the deadline.
enum class Status { Passed, Skipped, Failed, Crashed, TimedOut };

// What became of one case on one plugin.
struct Outcome {
  Status status = Status::Passed;
  std::string text;    // of one that did not pass: the Failure's or the Skip's, or how the process ended
  std::string output;  // what the case's process wrote to standard output and error, its end when that is long
  double seconds = 0.0;
  std::string replay;  // of a drawn world that fails, for --replay
};

constexpr bool is_failure(Status status) {
  return status != Status::Passed && status != Status::Skipped;
}

// "passed", "skipped", "failed", "crashed", "timed out".
const char* to_string(Status status);

}  // namespace strata::conformance
