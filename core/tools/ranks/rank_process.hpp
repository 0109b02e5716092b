#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::ranks {

// Reads a pipe line by line. An incomplete line is passed on when it gets too long or the pipe closes.
class LineReader {
 public:
  using TakeLine = std::function<void(const std::string& line)>;
  LineReader(int handle, TakeLine take) : handle_(handle), take_(std::move(take)) {}
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  int handle() const { return handle_; }  // -1 once the pipe has closed
  // Reads without blocking, at most one pipe buffer per call, so that a fast writer cannot occupy the reader. [open]
  void read();

 private:
  int handle_;
  std::string rest_;
  TakeLine take_;
};

// Forwards the ranks' standard error to this process's.
class ErrorLines {
 public:
  // Forwards a line, prefixed with its rank. An error, "strata: ...", that another rank has already reported in the
  // same words is dropped.
  void take(int rank, const std::string& line);
  // True if other lines were printed after the last line of this rank, or of the rank whose error it repeated.
  bool said_since(int rank) const { return last_.at(rank) != lines_; }

 private:
  struct Reported {
    int rank = 0;  // the first to report it
    std::int64_t line = 0;
  };
  std::int64_t lines_ = 0;
  std::map<int, std::int64_t> last_;          // by rank: the number of its last line
  std::map<std::string, Reported> reported_;  // by the error's text
};

// A process that has failed or was killed ends at once, unless it waits in the kernel for a device that does not
// respond; no signal ends it then. After this time it is abandoned.
constexpr std::chrono::seconds ends_within{10};

using Variables = std::vector<std::pair<std::string, std::string>>;

// Ends a child between fork and exec after a failed call: prints "strata: WHAT cannot be started: " and the reason of
// errno on standard error, and exits with the status of UserError or EnvironmentError. Makes system calls only.
[[noreturn]] void end_unstarted(const char* what);

// One rank: a child process in a process group of its own, killed by the kernel when its parent dies.
class RankProcess {
 public:
  // Starts `program` with `arguments` and `variables` added to this process's environment. `errors` gets its standard
  // error and must outlive this object. Throws EnvironmentError.
  RankProcess(int rank, const std::string& program, const std::vector<std::string>& arguments,
              const Variables& variables, ErrorLines& errors);
  // Kills the process group and reaps the child if it still runs.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int rank() const { return rank_; }
  bool ended() const { return ended_; }
  // Returns the exit status, or 128 + signal; valid once ended.
  int status() const;
  // True if a signal ended the process.
  bool killed() const;
  // Returns "exit status 3" or "killed by signal 9 (Killed)".
  std::string fate() const;
  // Checks for the end of the process; if it has ended, records that and kills the rest of its process group. Returns
  // true if this call found the end. A process that ended with an error, except for threads that wait in the kernel, is
  // abandoned after a while.
  bool reap();
  // Returns how long the process has been stopped by a signal other than a debugger's, from the call that finds it
  // stopped.
  std::optional<std::chrono::milliseconds> stopped_for();
  // Abandons the process if it still runs: it counts as ended.
  void abandon();
  // True if the process was abandoned.
  bool left() const { return left_; }
  int number() const { return process_; }
  // Sends a signal to the process group.
  void signal(int number) const;

  std::vector<LineReader*> outputs();
  // Returns the last lines on standard error.
  const std::deque<std::string>& last_words() const { return last_words_; }

 private:
  void take_error_line(const std::string& line);
  bool ended_but_for_the_kernel();

  int rank_;
  ErrorLines& errors_;
  pid_t process_ = -1;
  bool ended_ = false, left_ = false;
  int wait_status_ = 0;
  std::chrono::steady_clock::time_point looked_, ended_at_{};  // the latter for ended_but_for_the_kernel()
  std::optional<std::chrono::steady_clock::time_point> stopped_at_;
  std::deque<std::string> last_words_;
  std::deque<LineReader> readers_;
};

}  // namespace strata::ranks
