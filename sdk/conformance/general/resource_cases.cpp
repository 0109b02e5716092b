// Cases on what an instance leaves behind.
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>

#include "conformance/general/any_plugin.hpp"
#include "conformance/general/general_cases.hpp"
#include "conformance/runner/process_facts.hpp"

#include <strata/format.hpp>

namespace strata::conformance {

namespace {

void make_and_destroy(Subject& subject, int times) {
  for (int i = 0; i < times; ++i) {
    AnyPlugin plugin(subject);
    plugin.finish();
  }
}

// The kernel lists a thread for a moment after it was joined.
int threads_in_the_end(int expected) {
  for (int tries = 0; tries < 100 && threads_of_this_process() > expected; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return threads_of_this_process();
}

// A leak is there in every round; what the process itself keeps once, such as a table of libtorch that grows, is in
// one.
void nothing_leaks(Subject& subject) {
  constexpr int times = 100, rounds = 3;
  make_and_destroy(subject, 20);  // what is made once and kept
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < rounds && least >= times * 8; ++round) {
    const std::optional<std::int64_t> bytes = allocated_bytes();
    const int files = open_files_of_this_process();
    make_and_destroy(subject, times);
    const int more_files = open_files_of_this_process() - files;
    require(more_files <= 0, format("{} instances, created and destroyed, left {} files open", times, more_files));
    if (!bytes) return;
    least = std::min(least, *allocated_bytes() - *bytes);
  }
  require(least < times * 8, format("{} instances, created and destroyed, left {} bytes allocated; a leak in each "
                                    "would be at least 24 bytes (malloc's minimum) per instance",
                                    times, least));
}

void threads_are_joined(Subject& subject) {
  const int before = threads_of_this_process();
  AnyPlugin plugin(subject);
  const int with = threads_of_this_process();
  plugin.shutdown();
  const int after = threads_in_the_end(before);
  require(after <= before,
          std::to_string(after - before) + " of the " + std::to_string(with - before) +
              " threads that the plugin started are running after shutdown(); join them before shutdown() returns");
  make_and_destroy(subject, 5);
  require(threads_in_the_end(before) <= before, "5 instances, created and destroyed, left threads running");
  if (with == before) throw Skip("the plugin starts no thread in its constructor");
}

// A running thread, an atexit() handler or the destructor of a static can make a process crash or hang at its exit.
void the_process_ends(Subject& subject) {
  if (threads_of_this_process() > 1) throw Skip("other threads run in this process, so it cannot be forked");
  subject.library();
  const pid_t process = ::fork();
  require(process >= 0, "fork failed");
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      make_and_destroy(subject, 2);
    } catch (...) {
      std::_Exit(3);
    }
    std::exit(0);
  }
  int status = 0;
  for (int tries = 0; ::waitpid(process, &status, WNOHANG) == 0; ++tries) {
    require(tries < 2000, "a process that created two instances and shut them down does not exit within 20 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  require(!WIFSIGNALED(status), "a process that created two instances and shut them down dies at exit of SIG" +
                                    std::string(WIFSIGNALED(status) ? ::sigabbrev_np(WTERMSIG(status)) : ""));
  require(WEXITSTATUS(status) != 3, "an instance cannot be created");
  require(WEXITSTATUS(status) == 0,
          format("a process that created two instances exits with status {} instead of 0", WEXITSTATUS(status)));
}

}  // namespace

std::vector<Case> resource_cases() {
  return {
      {"general.leaks", "100 instances, created and destroyed, leak no memory and no open file.", nothing_leaks},
      {"general.threads", "No thread of the plugin runs after shutdown().", threads_are_joined},
      {"general.process_ends", "A process that used the plugin exits normally, with its own exit status.",
       the_process_ends},
  };
}

}  // namespace strata::conformance
