#pragma once
#include <strata/group.hpp>

#include <functional>
#include <vector>

#include "tools/bench/bench.hpp"

namespace strata::bench {

// Work to be timed; returns when done.
using Work = std::function<void()>;

// Times a plugin's work and its floor one after the other in every round, in alternating order. Each time is the mean
// over the repetitions that fill Settings::seconds. Of several floors the one with the smallest median over the same
// number of earlier rounds counts. The fastest of each round would be below each of them, because times vary.
class InterleavedTimer {
 public:
  // `ranks`: the time of the slowest rank counts, all start together; null: one process. Must outlive this object.
  explicit InterleavedTimer(const Settings& settings, Group* ranks = nullptr) : settings_(settings), ranks_(ranks) {}

  // Fills values and floor_values of `row`. `floors` must not be empty. [collective] over the ranks
  Row time(Row row, const Work& plugin, const std::vector<Work>& floors) const;

 private:
  const Work& fastest(const std::vector<Work>& works) const;
  int repetitions(const Work& work) const;
  double timed(const Work& work, int repetitions) const;
  void take_slowest(std::vector<double>& seconds) const;

  const Settings& settings_;
  Group* ranks_;
};

}  // namespace strata::bench
