// Identifies a process for others on its host, to see whether it runs, is stopped or is gone.
#pragma once
#include <cstdint>
#include <string>

namespace strata::group {

struct ProcessIdentity {
  std::string host;         // equal for processes that see each other under /proc; empty without /proc
  std::int64_t number = 0;  // process id
  std::uint64_t start = 0;  // start time in ticks since boot; distinguishes it from a later process with the same id
  bool operator==(const ProcessIdentity&) const = default;
};

enum class ProcessState {
  Runs,
  Stopped,  // by SIGSTOP or a terminal's Ctrl-Z
  Traced,   // held by a debugger
  Gone,     // it ended, or is a zombie
  Unknown,  // on another host or in another container
};

ProcessIdentity own_identity();
ProcessState state_of(const ProcessIdentity& process);

}  // namespace strata::group
