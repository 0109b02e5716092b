#include "tools/train/turn.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstdio>

namespace strata::cli {

Turn::Turn(const std::string& pipes) {
  if (pipes.empty()) return;
  char rest = 0;
  if (std::sscanf(pipes.c_str(), "%d,%d%c", &turns_, &arrivals_, &rest) != 2 || fcntl(turns_, F_GETFD) < 0 ||
      fcntl(arrivals_, F_GETFD) < 0)
    throw UserError("--turns {}: must be two open file descriptors; only `strata compare` sets this option", pipes);
}

void Turn::wait(const std::function<int()>& stop_requested) const {
  if (turns_ < 0) return;
  char byte = '.';
  ssize_t done = -1;
  while ((done = write(arrivals_, &byte, 1)) < 0 && errno == EINTR) {
  }
  if (done == 1) {
    while ((done = read(turns_, &byte, 1)) < 0 && errno == EINTR) {
      if (stop_requested && stop_requested() != 0) return;
    }
  }
  if (done != 1) throw EnvironmentError("the comparison that started this run has ended");
}

}  // namespace strata::cli
