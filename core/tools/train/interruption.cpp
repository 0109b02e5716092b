#include "tools/train/interruption.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "interface/src/system_error.hpp"
#include "tools/command/sudden_end.hpp"

namespace strata::cli {
namespace {

constexpr std::array<int, 3> watched{SIGINT, SIGTERM, SIGHUP};
constexpr std::int64_t same_request_ms = 500;
constexpr int signal_bits = 8;

// The first signal and when it came, in one number: a second one that another thread takes sees both or neither.
std::atomic<std::int64_t> request{0};
std::atomic<const char*> answer{nullptr};
std::array<struct sigaction, watched.size()> former;
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free,
              "a signal's handler may touch nothing that locks");

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

[[noreturn]] void stop_at_once(int number) {
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(number, &usual, nullptr);
  sigset_t one;  // it is held back while its handler runs
  sigemptyset(&one);
  sigaddset(&one, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  expect_end();
  _exit(128 + number);  // the first process of a container survives what others die of
}

// Runs in a signal handler, in whichever thread the kernel chose: system calls and atomics only, and errno as it was.
void take_signal(int number) {
  const int error = errno;
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (request.compare_exchange_strong(first, now << signal_bits | number)) {
    if (const char* const text = answer) [[maybe_unused]]
      const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  } else if (now - (first >> signal_bits) >= same_request_ms) {
    stop_at_once(number);
  }
  errno = error;
}

}  // namespace

const char* StopSignals::text_of(Answer how) {
  constexpr const char* fresh_line =
      "\nstrata: stopping after the current step (a second signal ends the run at once)\n";
  return how == Answer::None ? nullptr : how == Answer::Line ? fresh_line + 1 : fresh_line;
}

StopSignals::StopSignals(Answer how) {
  request = 0;
  answer = text_of(how);
  struct sigaction action {};
  action.sa_handler = take_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < watched.size(); ++i) {
    sigaction(watched[i], nullptr, &former[i]);
    if (watched[i] == SIGHUP && former[i].sa_handler == SIG_IGN) continue;
    if (sigaction(watched[i], &action, nullptr) != 0)
      throw EnvironmentError("cannot watch signals: {}", describe_errno(errno));
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &former[i], nullptr);
}

int StopSignals::requested() {
  return static_cast<int>(request & ((1 << signal_bits) - 1));
}

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  return name == nullptr ? "signal " + std::to_string(number) : std::string("SIG") + name;
}

}  // namespace strata::cli
