// Watchdog that ends a process whose plugin does not return from shutdown().
//
// [Note: How long shutdown() may take] Without limit while the process reads or writes a disk (bytes move, or a thread
// is in a system call that waits for one), or waits for other ranks, which the board ends. Otherwise at most a minute
// of computation; a process that sleeps for five seconds counts as hanging.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace strata::plugins {

// RAII watchdog during the shutdown of plugins, one after the other.
class ShutdownWatch {
 public:
  ShutdownWatch();
  ~ShutdownWatch();
  ShutdownWatch(const ShutdownWatch&) = delete;
  ShutdownWatch& operator=(const ShutdownWatch&) = delete;
  // Sets the plugin that is shutting down, "kind/name"; empty: none.
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

// RAII mark of a thread that waits for other ranks.
class WaitForRanks {
 public:
  WaitForRanks();
  ~WaitForRanks();
  WaitForRanks(const WaitForRanks&) = delete;
  WaitForRanks& operator=(const WaitForRanks&) = delete;
};

}  // namespace strata::plugins
