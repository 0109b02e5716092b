// One thread per rank, for work in a plugin that may never return.
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
  // Ends the threads; threads that still work are abandoned.
  ~RankThreads();

  // Runs `work` on every rank's thread. Throws the first exception, or Failure "`what` has not returned after 20 s" if
  // one takes longer than `patience`.
  void run(const std::string& what, std::chrono::seconds patience, const std::function<void(int rank)>& work);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace strata::conformance
