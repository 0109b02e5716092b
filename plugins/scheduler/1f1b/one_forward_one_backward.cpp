#include "one_forward_one_backward.hpp"

#include <strata/error.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <string>

using strata::ComputeAction;
using strata::ComputeKind;

namespace {

void require_one_chunk(const strata::PipelineShape& shape) {
  if (shape.chunks_per_stage != 1) {
    throw strata::UserError("1f1b runs one chunk per stage and was asked for " +
                            std::to_string(shape.chunks_per_stage) +
                            ": set chunks to 1 or choose an interleaved scheduler");
  }
}

}  // namespace

strata::Placement OneForwardOneBackward::place(const std::vector<strata::LayerCost>& layers,
                                               const strata::PipelineShape& shape) const {
  require_one_chunk(shape);
  return strata::toolbox::place_in_turn(layers, shape);
}

std::vector<ComputeAction> OneForwardOneBackward::order(const strata::PipelineShape& shape, int stage) const {
  require_one_chunk(shape);
  const int warm_up = std::min(shape.stages - 1 - stage, shape.micro_batches);
  std::vector<ComputeAction> order;
  int forward = 0;
  int backward = 0;
  while (forward < warm_up) order.push_back({ComputeKind::Forward, stage, forward++});
  while (forward < shape.micro_batches) {
    order.push_back({ComputeKind::Forward, stage, forward++});
    order.push_back({ComputeKind::Backward, stage, backward++});
  }
  while (backward < shape.micro_batches) order.push_back({ComputeKind::Backward, stage, backward++});
  return order;
}
