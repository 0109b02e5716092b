#include "runtime/interruption.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace strata::runtime {
namespace {

constexpr std::array<int, 3> watched{SIGINT, SIGTERM, SIGHUP};
constexpr std::int64_t same_request_ms = 500;

std::atomic<int> request{0};
std::atomic<std::int64_t> request_ms{0};
std::atomic<bool> announced{true};
std::array<struct sigaction, watched.size()> former;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal's handler may touch nothing that locks");

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// Runs in a signal handler: system calls and atomics only.
void take_signal(int number) {
  int none = 0;
  if (request.compare_exchange_strong(none, number)) {
    request_ms = now_ms();
    static constexpr char text[] =
        "strata: asked to stop; finishing the step under way (a second signal stops at once)\n";
    if (announced) [[maybe_unused]]
      const ssize_t written = ::write(STDERR_FILENO, text, sizeof text - 1);
    return;
  }
  if (now_ms() - request_ms < same_request_ms) return;
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(number, &usual, nullptr);
  sigset_t one;  // it is held back while its handler runs
  sigemptyset(&one);
  sigaddset(&one, number);
  kill(getpid(), number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

}  // namespace

StopSignals::StopSignals(bool announce) {
  request = 0;
  announced = announce;
  struct sigaction action {};
  action.sa_handler = take_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < watched.size(); ++i) {
    sigaction(watched[i], nullptr, &former[i]);
    if (watched[i] == SIGHUP && former[i].sa_handler == SIG_IGN) continue;
    if (sigaction(watched[i], &action, nullptr) != 0) throw Bug("a signal cannot be caught");
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < watched.size(); ++i) sigaction(watched[i], &former[i], nullptr);
}

int StopSignals::requested() {
  return request;
}

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  return name == nullptr ? "signal " + std::to_string(number) : std::string("SIG") + name;
}

}  // namespace strata::runtime
