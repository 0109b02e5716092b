// defines: Sequential
#pragma once
#include <strata/scheduler.hpp>

// One micro-batch at a time: its forward through all chunks, then its backward, then the next one. Needs the least
// memory; with several stages only one of them computes at any time, which makes it the reference that faster pipelines
// are compared with.
class Sequential : public strata::Scheduler {
 public:
  strata::Placement place(const std::vector<strata::LayerCost>& layers,
                          const strata::PipelineShape& shape) const override;
  std::vector<strata::ComputeAction> order(const strata::PipelineShape& shape, int stage) const override;
};
