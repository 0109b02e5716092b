#pragma once
#include <strata/group.hpp>

#include <functional>
#include <vector>

#include "tools/bench/bench.hpp"

namespace strata::bench {

// Something that is timed; it returns when it has been done.
using Work = std::function<void()>;

// Times a plugin's work and its floor, one after the other in every round, which of them first changing from round to
// round. Each time is the mean over as many repetitions as fill Settings::seconds. A floor is what nothing can beat:
// where there are several ways to do the least, all are timed, and a round's floor is the fastest of them in that
// round.
class InterleavedTimer {
 public:
  // `ranks`: whose slowest is timed, all beginning together; null for one process. Must outlive this.
  explicit InterleavedTimer(const Settings& settings, Group* ranks = nullptr) : settings_(settings), ranks_(ranks) {}

  // Fills values and floor_values of `row`. `floors`: at least one way to do the least. [collective] over the ranks
  Row time(Row row, const Work& plugin, const std::vector<Work>& floors) const;

 private:
  int repetitions(const Work& work) const;
  double timed(const Work& work, int repetitions) const;
  void take_slowest(std::vector<double>& seconds) const;

  const Settings& settings_;
  Group* ranks_;
};

}  // namespace strata::bench
