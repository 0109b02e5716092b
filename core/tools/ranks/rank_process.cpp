#include "tools/ranks/rank_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "interface/src/system_error.hpp"
#include "text/printable.hpp"
#include "tools/ranks/signal_reader.hpp"

extern char** environ;

namespace strata::ranks {

namespace {

constexpr std::size_t longest_line = 64 << 10;
constexpr std::size_t pipe_bytes = 64 << 10;  // capacity of a pipe
constexpr std::size_t last_lines = 12;
constexpr std::size_t most_reported = 1000;           // errors to remember; a user's program may write any number
constexpr int user_error = 2, environment_error = 3;  // exit_status() of the errors, which need memory

struct Pipe {
  int reading = -1;
  int writing = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw EnvironmentError("cannot create a pipe for a rank: {}", describe_errno(errno));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

void write_line(int handle, const std::string& line) {
  const std::string bytes = text::printable(line) + "\n";
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(handle, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) return;  // our output has no reader
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

std::vector<std::string> with_variables(const Variables& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : variables) replaced = replaced || text.starts_with(name + "=");
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

void write_text(const char* text) {
  [[maybe_unused]] const ssize_t written = text == nullptr ? 0 : ::write(STDERR_FILENO, text, std::strlen(text));
}

// Runs in the child between fork and exec: system calls only, as other threads' locks may be held.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* variables, pid_t parent, int out,
                         int error) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(environment_error);  // the parent died before prctl
  SignalReader::give_up_in_child();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  execve(program, arguments, variables);
  end_unstarted("the program of this rank");
}

}  // namespace

void end_unstarted(const char* what) {
  const int error = errno;
  for (const char* const text : {"strata: ", what, " cannot be started: ", strerrordesc_np(error), "\n"})
    write_text(text);
  _exit(is_of_the_machine(error) ? environment_error : user_error);
}

LineReader::~LineReader() {
  if (handle_ >= 0) close(handle_);
}

void LineReader::read() {
  std::array<char, pipe_bytes> buffer;
  ssize_t count = -1;
  while ((count = ::read(handle_, buffer.data(), buffer.size())) < 0 && errno == EINTR) {
  }
  if (count < 0 && errno == EAGAIN) return;
  if (count <= 0) {
    close(std::exchange(handle_, -1));
    if (!rest_.empty()) take_(std::exchange(rest_, {}));
    return;
  }
  rest_.append(buffer.data(), static_cast<std::size_t>(count));
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    take_(rest_.substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() > longest_line) take_(std::exchange(rest_, {}));
}

void ErrorLines::take(int rank, const std::string& line) {
  if (line.starts_with("strata: ") && reported_.size() < most_reported) {
    const Reported& first = reported_.try_emplace(line, Reported{rank, lines_ + 1}).first->second;
    if (first.rank != rank) {
      last_[rank] = first.line;
      return;
    }
  }
  last_[rank] = ++lines_;
  write_line(STDERR_FILENO, rank == 0 ? line : "[rank " + std::to_string(rank) + "] " + line);
}

RankProcess::RankProcess(int rank, const std::string& program, const std::vector<std::string>& arguments,
                         const Variables& variables, ErrorLines& errors)
    : rank_(rank), errors_(errors) {
  std::vector<std::string> argument_texts{program};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variable_texts = with_variables(variables);
  const std::vector<char*> argument_list = pointers(argument_texts);
  const std::vector<char*> variable_list = pointers(variable_texts);
  const Pipe error = make_pipe();
  readers_.emplace_back(error.reading, [this](const std::string& line) { take_error_line(line); });
  Pipe out;
  if (rank_ != 0) {  // rank 0 inherits standard output, so that it can draw on a terminal
    out = make_pipe();
    readers_.emplace_back(out.reading, [this](const std::string& line) {
      write_line(STDOUT_FILENO, "[rank " + std::to_string(rank_) + "] " + line);
    });
  }
  const pid_t parent = getpid();
  // A signal to the child must reach its program, not the handlers that it shares with us until exec.
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &former);
  process_ = fork();
  if (process_ == 0)
    become(program.c_str(), argument_list.data(), variable_list.data(), parent, out.writing, error.writing);
  const int problem = errno;
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
  close(error.writing);
  if (out.writing >= 0) close(out.writing);
  if (process_ < 0) throw EnvironmentError("cannot start rank {}: {}", rank_, describe_errno(problem));
  setpgid(process_, process_);  // parent and child both do it, whoever is first
}

RankProcess::~RankProcess() {
  if (process_ <= 0 || ended_) return;
  signal(SIGKILL);
  waitpid(process_, nullptr, 0);
}

void RankProcess::take_error_line(const std::string& line) {
  errors_.take(rank_, line);
  last_words_.push_back(line);
  if (last_words_.size() > last_lines) last_words_.pop_front();
}

int RankProcess::status() const {
  return WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

bool RankProcess::killed() const {
  return WIFSIGNALED(wait_status_);
}

std::string RankProcess::fate() const {
  if (!WIFSIGNALED(wait_status_)) return format("exit status {}", WEXITSTATUS(wait_status_));
  const int number = WTERMSIG(wait_status_);
  return format("killed by signal {} ({})", number, strsignal(number));
}

bool RankProcess::reap() {
  if (ended_) return false;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != process_)
    return ended_but_for_the_kernel();
  signal(SIGKILL);  // kills the rest of its group; while it is not reaped, its id cannot be reused
  ended_ = waitpid(process_, &wait_status_, 0) == process_;
  return ended_;
}

// The kernel notifies a parent when a child is stopped and continued.
std::optional<std::chrono::milliseconds> RankProcess::stopped_for() {
  if (ended_) return std::nullopt;
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(process_), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid == process_) {
    if (info.si_code != CLD_STOPPED)
      stopped_at_.reset();
    else if (!stopped_at_)
      stopped_at_ = std::chrono::steady_clock::now();
    info = {};
  }
  if (!stopped_at_) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - *stopped_at_);
}

void RankProcess::abandon() {
  if (!ended_) ended_ = left_ = true;
}

// waitid() reports a process only when its last thread has ended. Its main thread has already: the kernel shows that,
// and the exit status.
bool RankProcess::ended_but_for_the_kernel() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return false;
  looked_ = now;
  std::ifstream file("/proc/" + std::to_string(process_) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(") "), code = text.rfind(' ');
  const bool failed = name_ends != std::string::npos && text[name_ends + 2] == 'Z' && text.substr(code) != " 0";
  if (!failed) ended_at_ = {};
  if (failed && ended_at_ == std::chrono::steady_clock::time_point{}) ended_at_ = now;
  if (!failed || now - ended_at_ < ends_within) return false;
  wait_status_ = std::stoi(text.substr(code + 1));
  signal(SIGKILL);
  abandon();
  return true;
}

void RankProcess::signal(int number) const {
  kill(-process_, number);
}

std::vector<LineReader*> RankProcess::outputs() {
  std::vector<LineReader*> open;
  for (LineReader& reader : readers_)
    if (reader.handle() >= 0) open.push_back(&reader);
  return open;
}

}  // namespace strata::ranks
