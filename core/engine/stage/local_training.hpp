// `step_policy: local`: replica groups, each of which holds all slices once, train separately on their parts of the
// batch, and take an outer step by the average of their weights every few steps: local SGD (arXiv:1805.09767) and
// DiLoCo (arXiv:2311.08105), with fragments Streaming DiLoCo (arXiv:2501.18512).
//
// [Note: the outer step] With the last common weights w of the groups, their average a, and the momentum m:
//   d = w - a,   m = momentum m + d,   w = w - rate (d + momentum m)
// which is Nesterov's step by the outer gradient d. Every rank computes it for its slices, in fp32, equally in all
// groups; then the groups continue from w. The optimizer's state stays local to each group.
#pragma once
#include <strata/group.hpp>

#include <cstdint>
#include <vector>

#include "config/run_config.hpp"

namespace strata::stage {

struct LocalTraining {
  config::LocalConfig options;
  std::int64_t last_step = 0;  // last step of the run, after which every fragment is averaged
  Group* replicas = nullptr;   // ranks that own the same slices: group rank = number of this rank's replica group
  std::vector<int> fragments;  // fragment of each flat parameter

  int groups() const { return replicas->size(); }
  int group() const { return replicas->rank(); }
  // True if a flat parameter is averaged at the end of step number `steps_done` (from 1).
  bool is_due(std::int64_t steps_done, int flat_parameter) const {
    if (steps_done == last_step) return true;
    const std::int64_t fragment = fragments[static_cast<std::size_t>(flat_parameter)];
    return steps_done % options.steps == options.steps * (fragment + 1) / options.fragments % options.steps;
  }
};

}  // namespace strata::stage
