// Threads, one a rank, for work that a plugin may never come back from.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace strata::conformance {

class RankThreads {
 public:
  explicit RankThreads(int ranks);
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  // Ends the threads; those that still work are left behind.
  ~RankThreads();

  // Runs `work` on every rank's thread. Throws the first exception; Failure "`what` has not returned after 20 s" when
  // one takes longer than `patience`.
  void run(const std::string& what, std::chrono::seconds patience, const std::function<void(int rank)>& work);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace strata::conformance
