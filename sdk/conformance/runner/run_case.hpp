// Runs one case on one plugin, in this process or in a separate one.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "conformance/runner/case.hpp"
#include "conformance/runner/outcome.hpp"

namespace strata::conformance {

// Plugin and settings of a case.
struct Target {
  std::string file;  // absolute
  std::uint64_t seed = 1;
  SearchSettings search = {};
};

// Runs the case in this process, for a debugger. A crash ends the kit, a hang hangs it.
Outcome run_here(const Case& one, const Target& target);

// [Note: One process per case] A case runs in a child made by fork(), so that effects of the plugin on its process (a
// crash, a hang, output, changes of the allocator) belong to this case alone. The child already has libtorch, whose
// loading takes longer than most cases. fork() copies only the calling thread, so a lock held by another thread would
// stay locked in the child for ever. The parent therefore starts no thread: it computes nothing with libtorch and loads
// no plugin, and the constructor below checks this.
class CaseProcess {
 public:
  // Starts the process. Throws Bug if this process has threads, EnvironmentError if no process can be created.
  CaseProcess(const Case& one, const Target& target, std::chrono::seconds deadline);
  CaseProcess(const CaseProcess&) = delete;
  CaseProcess& operator=(const CaseProcess&) = delete;
  ~CaseProcess();

  // Returns the outcome once the process has ended or its deadline has passed; does not wait.
  std::optional<Outcome> ended();

 private:
  using Clock = std::chrono::steady_clock;
  Outcome outcome_of(int status) const;
  void end_group() const;

  pid_t process_ = -1;  // leader of a process group: all its processes end together
  int report_ = -1;     // file in memory: the status as one character, then the text
  int output_ = -1;     // file in memory: standard output and error
  Clock::time_point started_;
  std::chrono::seconds deadline_;
};

// Returns when a child has ended or after `longest`.
void wait_for_a_process(std::chrono::milliseconds longest);

}  // namespace strata::conformance
