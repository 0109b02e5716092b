#pragma once

#include <chrono>

namespace strata::stage {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// RAII timer that adds its lifetime to one of a step's parts.
class PartTimer {
 public:
  explicit PartTimer(double& part) : part_(part) {}
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;
  ~PartTimer() { part_ += seconds_since(begin_); }

 private:
  double& part_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace strata::stage
