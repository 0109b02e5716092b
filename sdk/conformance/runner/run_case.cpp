#include "conformance/runner/run_case.hpp"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "conformance/runner/process_facts.hpp"

namespace strata::conformance {

namespace {

constexpr std::string_view letters = "PSFCT";  // of a Status, in the report

int memory_file(const char* name) {
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0) throw EnvironmentError("a case's output has no place: memfd_create: {}", std::strerror(errno));
  return file;
}

// The last `limit` bytes.
std::string end_of(int file, off_t limit) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t begin = size > limit ? size - limit : 0;
  std::string text(static_cast<std::size_t>(size > begin ? size - begin : 0), '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), begin);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// libtorch's errors carry a stack trace behind their text; it is not about the plugin.
std::string text_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find("\nException raised from"));
}

void write_report(int file, const Outcome& outcome) {
  const std::string text = letters[static_cast<std::size_t>(outcome.status)] + outcome.text + '\0' + outcome.replay;
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote <= 0) std::_Exit(1);
    done += static_cast<std::size_t>(wrote);
  }
}

[[noreturn]] void be_the_child(const Case& one, const Target& target, pid_t parent, int report, int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core{0, 0};  // some plugins are expected to crash
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  at::set_num_threads(1);  // so that the threads there are, are the plugin's
  write_report(report, run_here(one, target));
  std::fflush(nullptr);
  std::_Exit(0);  // how processes end is a case of its own
}

}  // namespace

const char* to_string(Status status) {
  switch (status) {
    case Status::Passed:
      return "passed";
    case Status::Skipped:
      return "skipped";
    case Status::Failed:
      return "failed";
    case Status::Crashed:
      return "crashed";
    case Status::TimedOut:
      return "timed out";
  }
  throw Bug("an outcome of no kind");
}

Outcome run_here(const Case& one, const Target& target) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  try {
    Subject subject(target.file, target.seed, target.search);
    one.run(subject);
  } catch (const Skip& skip) {
    outcome = {Status::Skipped, skip.what(), "", 0.0};
  } catch (const DrawnFailure& failure) {
    outcome = {Status::Failed, failure.what(), "", 0.0, failure.replay};
  } catch (const std::exception& error) {
    outcome = {Status::Failed, text_of(error), "", 0.0};
  } catch (...) {
    outcome = {Status::Failed, "it threw what is no exception of the C++ library", "", 0.0};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

CaseProcess::CaseProcess(const Case& one, const Target& target, std::chrono::seconds deadline)
    : report_(memory_file("report")), output_(memory_file("output")), started_(Clock::now()), deadline_(deadline) {
  strata_check(threads_of_this_process() == 1, "the conformance kit forks with one thread only");
  std::fflush(nullptr);  // or the child writes it once more
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ < 0) throw EnvironmentError("a case has no process: fork: {}", std::strerror(errno));
  if (process_ == 0) be_the_child(one, target, parent, report_, output_);
  ::setpgid(process_, process_);  // both sides: whoever is first
}

CaseProcess::~CaseProcess() {
  if (process_ > 0) {
    end_group();
    ::waitpid(process_, nullptr, 0);
  }
  ::close(report_);
  ::close(output_);
}

void CaseProcess::end_group() const {
  ::kill(-process_, SIGKILL);
}

std::optional<Outcome> CaseProcess::ended() {
  siginfo_t info{};
  const bool late = Clock::now() - started_ > deadline_;
  const bool there =
      ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  if (!there && !late) return std::nullopt;
  end_group();  // while the process is not waited for, its number is not reused
  int status = 0;
  ::waitpid(process_, &status, 0);
  process_ = -1;
  Outcome outcome = there ? outcome_of(status)
                          : Outcome{Status::TimedOut,
                                    "it was still running after " + std::to_string(deadline_.count()) + " s", "", 0.0};
  outcome.output = end_of(output_, 8192);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  return outcome;
}

Outcome CaseProcess::outcome_of(int status) const {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* const name = ::sigabbrev_np(number);
    const char* const meaning = ::sigdescr_np(number);
    return {Status::Crashed,
            "its process died of " +
                (name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(number)) +
                (meaning != nullptr ? " (" + std::string(meaning) + ")" : ""),
            "", 0.0};
  }
  const std::string report = end_of(report_, 1 << 20);
  const std::size_t kind = report.empty() ? std::string_view::npos : letters.find(report.front());
  if (kind == std::string_view::npos)
    return {Status::Crashed,
            "its process ended with status " + std::to_string(WEXITSTATUS(status)) + " in the middle of the case", "",
            0.0};
  const std::size_t end = report.find('\0');
  return {static_cast<Status>(kind), report.substr(1, end - 1), "", 0.0, report.substr(end + 1)};
}

void wait_for_a_process(std::chrono::milliseconds longest) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  const timespec time{static_cast<time_t>(longest.count() / 1000),
                      static_cast<long>(longest.count() % 1000) * 1'000'000};
  ::sigtimedwait(&child, nullptr, &time);
}

}  // namespace strata::conformance
