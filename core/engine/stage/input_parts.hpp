// [Note: partitioned activations] With `activations.partition` the saved inputs of recomputed layers, which are equal
// on all ranks of a tensor group, are sharded over the group and all-gathered in backward, before the layer is
// recomputed. (P_a of ZeRO-R: Rajbhandari et al., arXiv 1910.02054)
#pragma once
#include <strata/group.hpp>
#include <strata/model.hpp>

#include <vector>

namespace strata::stage {

// Returns the shapes of a rank's shards of tensors of these shapes: one-dimensional.
std::vector<TensorShape> shapes_of_parts(const std::vector<TensorShape>& whole, int ranks);
// Copies this rank's shard of each tensor; the last ranks' shards are padded with zeros.
Tensors parts_of(const Tensors& whole, const Group& group);
// Gathers the shards to the whole tensors. [collective]
Tensors gather_parts(const Tensors& parts, const std::vector<TensorShape>& whole, Group& group);

}  // namespace strata::stage
