// A process as the others of its host find it again: whether it runs, is stopped, or is gone.
#pragma once
#include <cstdint>
#include <string>

namespace strata::runtime {

struct ProcessIdentity {
  std::string host;         // equal for processes that see each other under /proc; empty where there is no /proc
  std::int64_t number = 0;  // the process id
  std::uint64_t start = 0;  // when it started, in ticks since boot: tells it from a later process of the same number
  bool operator==(const ProcessIdentity&) const = default;
};

enum class ProcessState {
  Runs,
  Stopped,  // by SIGSTOP or a terminal's Ctrl-Z
  Traced,   // held by a debugger
  Gone,     // it ended, or nobody has reaped it yet
  Unknown,  // it is on another host or in another container
};

ProcessIdentity own_identity();
ProcessState state_of(const ProcessIdentity& process);

}  // namespace strata::runtime
