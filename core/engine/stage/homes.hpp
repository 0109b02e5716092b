// Homes of a rank's buffers, by the config's `offload` section.
#pragma once
#include "memory/buffers.hpp"
#include "stage/layers.hpp"
#include "state/layout.hpp"

namespace strata::stage {

// Returns the homes. Ratios count whole parameters, and all layers of the model: equal on ranks that hold the same.
// Throws UserError for homes that cannot be combined.
memory::MemoryPlan plan_homes(const Setup& setup, const Layers& layers, const state::Layout& layout);

// Throws UserError for a key that only homes without effect on this run would use.
void check_used(const Setup& setup, const memory::Buffers& buffers);

}  // namespace strata::stage
