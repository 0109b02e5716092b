#pragma once
#include <string>

namespace strata::conformance {

// Crashed: the process of the case died, or ended without a result. TimedOut: it was still running at the deadline.
enum class Status { Passed, Skipped, Failed, Crashed, TimedOut };

// Outcome of one case on one plugin.
struct Outcome {
  Status status = Status::Passed;
  std::string text;    // text of the Failure or the Skip, or the end of the process; empty if passed
  std::string output;  // standard output and error of the case's process; of a long one the end
  double seconds = 0.0;
  std::string replay;  // failing drawn world, for --replay
};

constexpr bool is_failure(Status status) {
  return status != Status::Passed && status != Status::Skipped;
}

// Returns "passed", "skipped", "failed", "crashed", "timed out".
const char* to_string(Status status);

}  // namespace strata::conformance
