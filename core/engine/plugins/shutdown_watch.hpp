// Ends a process whose plugin does not come back from shutdown(), which would hang without a word.
//
// [Note: How long shutdown() may take] As long as the process reads or writes a disk (bytes move, or a thread is in a
// system call that waits for one), or waits for other ranks, which the board ends. Else it must compute, for a minute
// at most; a process that sleeps for five seconds waits for what never comes.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace strata::plugin_host {

// During its lifetime plugins are shut down, one after the other.
class ShutdownWatch {
 public:
  ShutdownWatch();
  ~ShutdownWatch();
  ShutdownWatch(const ShutdownWatch&) = delete;
  ShutdownWatch& operator=(const ShutdownWatch&) = delete;
  // From now on it is this plugin's turn, "kind/name"; empty: nobody's.
  void watch(const std::string& plugin);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string plugin_;
  std::uint64_t turn_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

// During its lifetime a thread waits for other ranks.
class WaitForRanks {
 public:
  WaitForRanks();
  ~WaitForRanks();
  WaitForRanks(const WaitForRanks&) = delete;
  WaitForRanks& operator=(const WaitForRanks&) = delete;
};

}  // namespace strata::plugin_host
