// Reports work in progress and its duration on stderr.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace strata::verify {

// On a terminal one line, rewritten every second and removed at the end; elsewhere a line at the beginning, and one
// every thirty seconds.
class Ticker {
 public:
  // Prints nothing if `says` is false.
  Ticker(std::string what, bool says);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void run();
  void show(const std::string& text) const;

  std::string what_;
  bool on_terminal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace strata::verify
