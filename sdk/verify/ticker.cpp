#include "verify/ticker.hpp"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <utility>

namespace strata::verify {

Ticker::Ticker(std::string what, bool says) : what_(std::move(what)), on_terminal_(isatty(STDERR_FILENO) == 1) {
  if (!says) return;
  std::cerr << (on_terminal_ ? "\r\033[K" : "") << what_ << (on_terminal_ ? "" : "\n") << std::flush;
  thread_ = std::thread([this] { run(); });
}

Ticker::~Ticker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (on_terminal_) std::cerr << "\r\033[K" << std::flush;
}

void Ticker::run() {
  const std::chrono::seconds every(on_terminal_ ? 1 : 30);
  std::unique_lock lock(mutex_);
  for (std::chrono::seconds so_far = every; !changed_.wait_for(lock, every, [&] { return ended_; }); so_far += every)
    std::cerr << (on_terminal_ ? "\r\033[K" : "") << what_ << ": " << so_far.count() << " s so far"
              << (on_terminal_ ? "" : "\n") << std::flush;
}

}  // namespace strata::verify
