#pragma once
#include <signal.h>

#include <array>
#include <optional>

namespace strata::ranks {

// During its lifetime, SIGINT, SIGTERM, SIGHUP (unless ignored before, as under nohup) and SIGCHLD only make a
// descriptor readable, whichever thread of the process receives them. At most one instance per process.
class SignalReader {
 public:
  // Throws EnvironmentError.
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  int handle() const { return reading_; }
  // Returns the next signal that requests the end of the run; SIGCHLD only makes the descriptor readable.
  std::optional<int> next_request();
  // Removes the handlers in a child between fork and exec, which inherits them with all signals blocked.
  static void give_up_in_child();

 private:
  static constexpr std::array<int, 4> watched{SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  int reading_ = -1;
  std::array<struct sigaction, watched.size()> former_{};
};

}  // namespace strata::ranks
