#pragma once
#include <signal.h>

#include <array>
#include <optional>

namespace strata::launch {

// While one lives, SIGINT, SIGTERM, SIGHUP (unless it was ignored before, as under nohup) and SIGCHLD make a descriptor
// readable and do nothing else. They are caught in the whole process: whichever thread takes one, made before or after
// by whatever library, it arrives here. One at a time in a process.
class SignalReader {
 public:
  // Throws EnvironmentError.
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  int handle() const { return reading_; }
  // The next signal that asks to end the run; SIGCHLD only wakes who waits for the descriptor.
  std::optional<int> next_request();
  // For a child between fork and exec, which has these handlers too, with all signals held back.
  static void give_up_in_child();

 private:
  static constexpr std::array<int, 4> watched{SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  int reading_ = -1;
  std::array<struct sigaction, watched.size()> former_{};
};

}  // namespace strata::launch
