#include "tools/compare/run_in_turns.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "interface/src/system_error.hpp"
#include "tools/ranks/rank_process.hpp"
#include "tools/ranks/run_ranks.hpp"

namespace strata::compare {

namespace {

struct Pipe {
  int reading = -1;
  int writing = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw EnvironmentError("cannot start a run: {}", describe_errno(errno));
  return {ends[0], ends[1]};
}

void close_end(int& end) {
  if (end >= 0) close(std::exchange(end, -1));
}

// Only this run inherits its end of the pipe, not the runs started later.
bool hand_on(int end) {
  return fcntl(end, F_SETFD, 0) == 0;
}

// Executes `program` with its output in `file`; does not return.
[[noreturn]] void become(const std::string& program, std::vector<std::string> words, int file, pid_t parent) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // not a request: a rank that computes without end never takes one
  if (getppid() != parent || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0)
    ranks::end_unstarted("the run");
  execv(program.c_str(), arguments.data());
  ranks::end_unstarted("the run");
}

}  // namespace

RunInTurns::RunInTurns(std::vector<std::string> words, const std::string& output, int ranks) : ranks_(ranks) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw EnvironmentError("{}: {}", output, describe_errno(errno));
  Pipe turns = make_pipe(), arrivals = make_pipe();
  if (ranks > 0)
    words.insert(words.end(), {"--turns", std::to_string(turns.reading) + "," + std::to_string(arrivals.writing)});
  signal(SIGPIPE, SIG_IGN);
  const std::string program = (ranks::running_executable().parent_path() / "strata").string();
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) {
    if (!hand_on(turns.reading) || !hand_on(arrivals.writing)) ranks::end_unstarted("the run");
    become(program, std::move(words), file, parent);
  }
  close(file);
  close_end(turns.reading);
  close_end(arrivals.writing);
  turns_ = turns.writing;
  arrivals_ = arrivals.reading;
  if (process_ < 0) throw EnvironmentError("cannot start a run: {}", describe_errno(errno));
}

RunInTurns::RunInTurns(RunInTurns&& other) noexcept
    : ranks_(other.ranks_),
      turns_(std::exchange(other.turns_, -1)),
      arrivals_(std::exchange(other.arrivals_, -1)),
      process_(std::exchange(other.process_, -1)) {}

// A run that is not wanted any more may end in good order, but not take long for it.
RunInTurns::~RunInTurns() {
  constexpr std::chrono::seconds patience{5};
  close_end(turns_);
  close_end(arrivals_);
  if (process_ > 0) kill(process_, SIGTERM);
  for (const auto end = std::chrono::steady_clock::now() + patience; process_ > 0;) {
    if (waitpid(process_, nullptr, WNOHANG) != 0) return;
    if (std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (process_ > 0) kill(process_, SIGKILL);
  finish();
}

bool RunInTurns::stands_before_step() {
  std::array<char, 64> bytes{};
  for (int missing = ranks_; missing > 0;) {
    const ssize_t count = read(arrivals_, bytes.data(), std::min(bytes.size(), static_cast<std::size_t>(missing)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    missing -= static_cast<int>(count);
  }
  return true;
}

void RunInTurns::go() {
  const std::string bytes(static_cast<std::size_t>(ranks_), '.');  // a pipe takes up to 4096 at once or not at all
  while (write(turns_, bytes.data(), bytes.size()) < 0 && errno == EINTR) {
  }  // another error means that the run has ended; stands_before_step() reports it
}

int RunInTurns::finish() {
  close_end(turns_);
  close_end(arrivals_);
  if (process_ <= 0) return 0;
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace strata::compare
