#pragma once
#include <pthread.h>
#include <csignal>
#include <ctime>

namespace strata::gloo_communicator {

// During its lifetime, a write of this thread to a connection closed by the peer fails with an error. By default
// SIGPIPE ends the process, and gloo writes without MSG_NOSIGNAL. Threads started meanwhile keep this behaviour.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~BrokenPipesAreErrors() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&broken_pipe_, nullptr, &at_once);  // the signal raised by a write here
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t broken_pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace strata::gloo_communicator
