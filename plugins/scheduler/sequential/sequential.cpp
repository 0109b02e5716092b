#include "sequential.hpp"

#include <strata/toolbox/placement.hpp>

using strata::ComputeAction;
using strata::ComputeKind;

strata::Placement Sequential::place(const std::vector<strata::LayerCost>& layers,
                                    const strata::PipelineShape& shape) const {
  return strata::toolbox::place_in_turn(layers, shape);
}

std::vector<ComputeAction> Sequential::order(const strata::PipelineShape& shape, int stage) const {
  std::vector<ComputeAction> order;
  for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
    for (int chunk = stage; chunk < shape.chunks(); chunk += shape.stages) {
      order.push_back({ComputeKind::Forward, chunk, micro_batch});
    }
    for (int chunk = shape.chunks() - shape.stages + stage; chunk >= 0; chunk -= shape.stages) {
      order.push_back({ComputeKind::Backward, chunk, micro_batch});
    }
  }
  return order;
}
