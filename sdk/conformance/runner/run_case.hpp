// Runs one case on one plugin: here, or in a process of its own.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "conformance/runner/case.hpp"
#include "conformance/runner/outcome.hpp"

namespace strata::conformance {

// On what a case runs.
struct Target {
  std::string file;  // absolute
  std::uint64_t seed = 1;
  SearchSettings search = {};
};

// In this process: for a debugger. A crash ends the kit, a hang hangs it.
Outcome run_here(const Case& one, const Target& target);

// [Note: One process per case] A case runs in a child made by fork(): whatever the plugin does to its process, to
// crash, to hang, to print, to change the allocator, is that case's result alone, and the child has libtorch already,
// whose loading takes longer than most cases. fork() copies the calling thread only, so that a lock which another
// thread holds stays locked in the child for ever. The parent therefore starts no thread: it computes nothing with
// libtorch and loads no plugin, and the constructor below makes sure.
class CaseProcess {
 public:
  // Starts it. Throws Bug when this process has threads, EnvironmentError when no process can be made.
  CaseProcess(const Case& one, const Target& target, std::chrono::seconds deadline);
  CaseProcess(const CaseProcess&) = delete;
  CaseProcess& operator=(const CaseProcess&) = delete;
  ~CaseProcess();

  // The outcome, when the process has ended or its deadline has passed; does not wait.
  std::optional<Outcome> ended();

 private:
  using Clock = std::chrono::steady_clock;
  Outcome outcome_of(int status) const;
  void end_group() const;

  pid_t process_ = -1;  // leads a process group: what it starts ends with it
  int report_ = -1;     // a file in memory: the status as one character, then the text
  int output_ = -1;     // another, its standard output and error
  Clock::time_point started_;
  std::chrono::seconds deadline_;
};

// Returns when a child has ended or after `longest`.
void wait_for_a_process(std::chrono::milliseconds longest);

}  // namespace strata::conformance
