#include "tools/command/leave.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fingerprint.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "interface/src/system_error.hpp"
#include "text/terminal_output.hpp"
#include "tools/command/sudden_end.hpp"

namespace strata::cli {

namespace {

bool somebody_sees_the_end() {
  return std::string_view(STRATA_FINGERPRINT_SANITIZER) != "none" || std::getenv("LD_PRELOAD") != nullptr ||
         std::getenv("CUDA_INJECTION64_PATH") != nullptr;
}

// A reader that closed the pipe, as `head` does, is not reported as an error: the status is that of SIGPIPE.
int status_without_output() {
  const int problem = text::output_error() != 0 ? text::output_error() : errno;
  if (problem == EPIPE) return 128 + SIGPIPE;
  const EnvironmentError error("standard output cannot be written: " + describe_errno(problem));
  std::cerr << "strata: " << error.what() << std::endl;
  return error.exit_status();
}

}  // namespace

void leave(int status) {
  expect_end();
  if (!std::cout.flush() && status == 0) status = status_without_output();
  if (somebody_sees_the_end()) std::exit(status);
  spdlog::shutdown();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace strata::cli
