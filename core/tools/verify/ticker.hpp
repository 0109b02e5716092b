// Says on stderr what is under way, and for how long.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace strata::verify {

// On a terminal one line, which is rewritten every second and taken away at the end; elsewhere a line at the beginning,
// and one every thirty seconds.
class Ticker {
 public:
  // Says nothing where `says` is false.
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
