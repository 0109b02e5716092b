#include "tools/ranks/signal_reader.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "interface/src/system_error.hpp"

namespace strata::ranks {

namespace {

std::atomic<int> writing_end{-1};

// Runs in a signal handler, in any thread. If the pipe is full, its reader wakes anyway.
void note(int number) {
  const int error = errno;
  const auto byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t written = ::write(writing_end, &byte, 1);
  errno = error;
}

}  // namespace

SignalReader::SignalReader() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw EnvironmentError("cannot watch signals: {}", describe_errno(errno));
  reading_ = ends[0];
  writing_end = ends[1];
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  sigfillset(&action.sa_mask);
  for (std::size_t i = 0; i < watched.size(); ++i) {
    sigaction(watched[i], nullptr, &former_[i]);
    if (watched[i] == SIGHUP && former_[i].sa_handler == SIG_IGN) continue;
    if (sigaction(watched[i], &action, nullptr) != 0)
      throw EnvironmentError("cannot watch signals: {}", describe_errno(errno));
  }
}

SignalReader::~SignalReader() {
  for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &former_[i], nullptr);
  ::close(writing_end.exchange(-1));
  ::close(reading_);
}

std::optional<int> SignalReader::next_request() {
  char byte = 0;
  while (::read(reading_, &byte, 1) == 1)
    if (byte != SIGCHLD) return byte;
  return std::nullopt;
}

void SignalReader::give_up_in_child() {
  for (const int number : watched) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != note) continue;
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace strata::ranks
