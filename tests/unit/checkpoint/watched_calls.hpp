// Calls of the C library that this program makes on files of one folder: counted, and one of them fails.
#pragma once
#include <string>
#include <vector>

// While one lives, calls of `names` on paths below `folder` count, and number `failing` of them, from 1, fails with
// `error`. One at a time.
class WatchedCalls {
 public:
  WatchedCalls(const std::string& folder, const std::vector<std::string>& names, long failing = 0, int error = 0);
  ~WatchedCalls();
  WatchedCalls(const WatchedCalls&) = delete;
  WatchedCalls& operator=(const WatchedCalls&) = delete;

  long count() const;
  std::string failed() const;  // "fsync /a/b", of the call that failed
};
