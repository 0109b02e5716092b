#pragma once
#include <sys/resource.h>

#include <algorithm>

namespace strata::group {

// Raises this process's soft limit of open files to the hard one: a rank holds a connection to every other rank, and
// rank 0 may serve two to each. An unlimited hard limit counts as 2^20, so that programs can still count up to it.
inline void allow_most_open_files() {
  constexpr rlim_t enough = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::max(limit.rlim_cur, std::min(limit.rlim_max, enough));
  if (limit.rlim_cur == wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // if refused, the former limit stays, and errors at the limit name it
}

}  // namespace strata::group
