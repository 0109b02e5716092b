// Calls run_ranks in a forked child, as the `strata` command does in a process of its own, and takes what it prints.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "catch.hpp"
#include "tools/ranks/run_ranks.hpp"

struct Ended {
  int status = -1;  // the exit status, or 128 + signal
  std::string out;
  std::string error;
  double seconds = 0.0;
};

// A file that is gone at the end of the scope.
class TemporaryFile {
 public:
  TemporaryFile() : handle_(mkstemp(path_.data())) { REQUIRE(handle_ >= 0); }
  ~TemporaryFile() {
    close(handle_);
    unlink(path_.data());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  int handle() const { return handle_; }
  std::string path() const { return path_.data(); }
  std::string text() const {
    std::ifstream stream(path());
    std::ostringstream content;
    content << stream.rdbuf();
    return content.str();
  }

 private:
  std::array<char, 32> path_{"/tmp/strata_test_XXXXXX"};
  int handle_;
};

// `meanwhile` runs here with the child's process number.
inline Ended run_in_child(const strata::ranks::RankProgram& program, const std::function<void(pid_t)>& meanwhile = {}) {
  const TemporaryFile out;
  const TemporaryFile error;
  std::fflush(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(out.handle(), STDOUT_FILENO);
    dup2(error.handle(), STDERR_FILENO);
    int status = 99;
    try {
      status = strata::ranks::run_ranks(program);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "run_ranks threw: %s\n", problem.what());
    }
    std::fflush(nullptr);
    _exit(status);
  }
  if (meanwhile) meanwhile(child);
  int wait_status = 0;
  REQUIRE(waitpid(child, &wait_status, 0) == child);
  Ended ended;
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ended.status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  ended.out = out.text();
  ended.error = error.text();
  return ended;
}
