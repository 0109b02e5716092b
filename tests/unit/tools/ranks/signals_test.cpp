// Signals reach who is to take them, whatever threads there are and whatever else there is to do.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tools/ranks/rank_process.hpp"
#include "tools/train/interruption.hpp"
#include "unit/tools/ranks/run_in_child.hpp"

using namespace std::chrono_literals;
using strata::cli::StopSignals;
using strata::ranks::LineReader;

namespace {

// A thread that signals are not held back from, as one is that a library made before anybody thought of signals.
class IdleThread {
 public:
  IdleThread()
      : thread_([this] {
          number_ = static_cast<pid_t>(syscall(SYS_gettid));
          while (!ended_) std::this_thread::sleep_for(1ms);
        }) {
    while (number_ == 0) std::this_thread::yield();
  }
  ~IdleThread() {
    ended_ = true;
    thread_.join();
  }
  IdleThread(const IdleThread&) = delete;
  IdleThread& operator=(const IdleThread&) = delete;
  void signal(int number) const { syscall(SYS_tgkill, getpid(), number_.load(), number); }

 private:
  std::atomic<pid_t> number_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// The status of a child that does `work` and returns its result.
int status_of(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(work());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

strata::ranks::RankProgram traps(const std::string& then) {
  strata::ranks::RankProgram program;
  program.ranks = 2;
  program.program = "/bin/sh";
  program.arguments = {"-c", "trap '" + then + "' INT TERM HUP; echo ready; while :; do sleep 0.05; done"};
  program.patience = 500ms;
  return program;
}

bool says(const TemporaryFile& file, const std::string& text, int times) {
  for (int attempt = 0; attempt < 500; ++attempt) {
    const std::string all = file.text();
    int found = 0;
    for (std::size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    if (found >= times) return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

}  // namespace

TEST_CASE("one call reads no more than a pipe holds, however fast a rank writes") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const std::string line = "a rank that writes a line whenever one is read\n";
  REQUIRE(write(ends[1], line.data(), line.size()) > 0);
  std::int64_t taken = 0;
  LineReader reader(ends[0], [&](const std::string&) {
    if (++taken < 200'000) [[maybe_unused]]
      const ssize_t written = write(ends[1], line.data(), line.size());
  });
  reader.read();
  CHECK(taken <= (64 << 10) / static_cast<std::int64_t>(line.size()) + 1);
  close(ends[1]);
}

TEST_CASE("a launcher with a thread that takes signals passes them on") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([&] {
      const TemporaryFile out;
      dup2(out.handle(), STDOUT_FILENO);
      const IdleThread thread;
      std::thread sender([&] {
        if (says(out, "ready", 2)) thread.signal(number);
      });
      const int result = strata::ranks::run_ranks(traps("echo left; exit 0"));
      sender.join();
      return result == 128 + number && says(out, "left", 2) ? 0 : 1;
    });
    CHECK(status == 0);
  }
}

TEST_CASE("a second signal stops at once where SIGINT was ignored") {
  const auto begin = std::chrono::steady_clock::now();
  const int status = status_of([&] {
    signal(SIGINT, SIG_IGN);
    const TemporaryFile out;
    dup2(out.handle(), STDOUT_FILENO);
    const IdleThread thread;
    std::thread sender([&] {
      if (!says(out, "ready", 2)) return;
      kill(getpid(), SIGINT);
      std::this_thread::sleep_for(700ms);
      kill(getpid(), SIGINT);
    });
    const int result = strata::ranks::run_ranks(traps(":"));
    sender.join();
    return result;
  });
  CHECK(status == 128 + SIGINT);
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

TEST_CASE("a rank notes the first signal in any thread, and keeps errno") {
  const int status = status_of([] {
    const StopSignals signals(StopSignals::Answer::Line);
    close(STDERR_FILENO);  // the answer's write fails, and sets errno
    const IdleThread thread;
    errno = ENOTTY;
    raise(SIGTERM);
    if (errno != ENOTTY) return 1;
    thread.signal(SIGTERM);  // the same request, as terminals and launchers may both pass one on
    std::this_thread::sleep_for(50ms);
    return StopSignals::requested() == SIGTERM ? 0 : 2;
  });
  CHECK(status == 0);
}

TEST_CASE("two threads that take a signal each at the same moment took one request") {
  for (int attempt = 0; attempt < 500; ++attempt) {
    const int status = status_of([] {
      const StopSignals signals(StopSignals::Answer::None);
      std::atomic<int> ready{0};
      const auto both = [&] {
        ++ready;
        while (ready < 2) {
        }
        raise(SIGTERM);
      };
      std::thread one(both), other(both);
      one.join();
      other.join();
      return StopSignals::requested() == SIGTERM ? 0 : 2;
    });
    REQUIRE(status == 0);
  }
}

TEST_CASE("a second signal ends the process, the first one of a container too") {
  const auto twice = [] {
    const StopSignals signals(StopSignals::Answer::None);
    raise(SIGTERM);
    std::this_thread::sleep_for(600ms);
    raise(SIGTERM);
    return 0;
  };
  CHECK(status_of(twice) == 128 + SIGTERM);
  CHECK(status_of([&] {
          if (unshare(CLONE_NEWPID) != 0)
            return 128 + SIGTERM;  // only root may, and everybody else has seen what there is
          return status_of(twice);
        }) == 128 + SIGTERM);
}
