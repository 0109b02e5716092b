#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>
#include <strata/scheduler.hpp>

namespace strata::stage {

// Sends an element both ways between every two stages with consecutive chunks. Some backends connect two ranks at their
// first message and block meanwhile; here this happens before the first step, pair by pair in the same order on all
// ranks. [collective] over the pipeline, whose group rank is the stage
void connect_stages(Group& pipeline, const Placement& placement, at::Device device);

}  // namespace strata::stage
