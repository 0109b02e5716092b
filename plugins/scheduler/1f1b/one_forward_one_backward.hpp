// defines: OneForwardOneBackward
#pragma once
#include <strata/scheduler.hpp>

// One chunk per stage. Stage r of p first computes min(p - 1 - r, m) forwards, then pairs of one forward and one
// backward while forwards are left, then the remaining backwards. Its last stage alternates from the start, so at most
// min(p - r, m) micro-batches are alive on stage r; with forwards of time F and backwards of B each stage is idle for
// (p - 1)(F + B).
class OneForwardOneBackward : public strata::Scheduler {
 public:
  strata::Placement place(const std::vector<strata::LayerCost>& layers,
                          const strata::PipelineShape& shape) const override;
  std::vector<strata::ComputeAction> order(const strata::PipelineShape& shape, int stage) const override;
};
