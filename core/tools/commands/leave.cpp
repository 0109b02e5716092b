#include "tools/commands/leave.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fingerprint.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tools/commands/sudden_end.hpp"

namespace strata::cli {

namespace {

bool somebody_sees_the_end() {
  return std::string_view(STRATA_FINGERPRINT_SANITIZER) != "none" || std::getenv("LD_PRELOAD") != nullptr ||
         std::getenv("CUDA_INJECTION64_PATH") != nullptr;
}

}  // namespace

void leave(int status) {
  expect_end();
  if (!std::cout.flush() && status == 0) {
    const EnvironmentError error("standard output cannot be written; is the disk full?");
    std::cerr << "strata: " << error.what() << std::endl;
    status = error.exit_status();
  }
  if (somebody_sees_the_end()) std::exit(status);
  spdlog::shutdown();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace strata::cli
