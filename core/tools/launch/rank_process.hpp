#pragma once
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace strata::launch {

// The reading end of a pipe, taken line by line. A line without an end is handed out when it grows too long or the pipe
// closes.
class LineReader {
 public:
  using TakeLine = std::function<void(const std::string& line)>;
  LineReader(int handle, TakeLine take) : handle_(handle), take_(std::move(take)) {}
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  int handle() const { return handle_; }  // -1 once the pipe has closed
  // Reads what is there without blocking, and no more than the pipe holds: whoever writes faster than lines are passed
  // on must not keep their reader from everything else. [open]
  void read();

 private:
  int handle_;
  std::string rest_;
  TakeLine take_;
};

// What ranks write to standard error, on its way to this process's.
class ErrorLines {
 public:
  // Passes a line on, marked by its rank. An error, "strata: ...", that another rank has reported in the same words is
  // not said again.
  void take(int rank, const std::string& line);
  // Whether other lines stand below the last one of this rank, or of the rank whose words it repeated.
  bool said_since(int rank) const { return last_.at(rank) != lines_; }

 private:
  struct Reported {
    int rank = 0;  // that said it first
    std::int64_t line = 0;
  };
  std::int64_t lines_ = 0;
  std::map<int, std::int64_t> last_;          // by rank: the number of its last line
  std::map<std::string, Reported> reported_;  // by an error's words
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// One rank: a child process in a process group of its own, killed by the kernel when its parent dies.
class RankProcess {
 public:
  // Starts `program` with `arguments` and `variables` on top of this process's environment. Throws EnvironmentError.
  // `errors` takes its standard error, and must outlive it.
  RankProcess(int rank, const std::string& program, const std::vector<std::string>& arguments,
              const Variables& variables, ErrorLines& errors);
  // Kills the process group and reaps the child when it is still there.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int rank() const { return rank_; }
  pid_t process() const { return process_; }
  bool ended() const { return ended_; }
  // What waitpid said; only once ended.
  int wait_status() const { return wait_status_; }
  // The exit status, or 128 + signal.
  int status() const;
  // Whether a signal ended it.
  bool killed() const;
  // "exit status 3", "killed by signal 9 (Killed)".
  std::string fate() const;
  // Notes its end when it has ended and kills what it left in its group; returns whether this call noticed it.
  bool reap();
  // To the whole process group.
  void signal(int number) const;

  std::vector<LineReader*> outputs();
  // The last lines on standard error.
  const std::deque<std::string>& last_words() const { return last_words_; }

 private:
  void take_error_line(const std::string& line);

  int rank_;
  ErrorLines& errors_;
  pid_t process_ = -1;
  bool ended_ = false;
  int wait_status_ = 0;
  std::deque<std::string> last_words_;
  std::deque<LineReader> readers_;
};

}  // namespace strata::launch
