#include "tools/verify/ticker.hpp"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <utility>

#include "text/terminal_output.hpp"

namespace strata::verify {

Ticker::Ticker(std::string what, bool says) : what_(std::move(what)), on_terminal_(isatty(STDERR_FILENO) == 1) {
  if (!says) return;
  show(what_);
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
  if (on_terminal_) std::cerr << text::clear_line << std::flush;
}

void Ticker::show(const std::string& text) const {
  if (on_terminal_) std::cerr << text::clear_line;
  std::cerr << text << (on_terminal_ ? "" : "\n") << std::flush;
}

void Ticker::run() {
  const std::chrono::seconds every(on_terminal_ ? 1 : 30);
  std::unique_lock lock(mutex_);
  for (std::chrono::seconds so_far = every; !changed_.wait_for(lock, every, [&] { return ended_; }); so_far += every)
    show(what_ + ": " + std::to_string(so_far.count()) + " s so far");
}

}  // namespace strata::verify
