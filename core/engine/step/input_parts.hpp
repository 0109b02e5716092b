// [Note: partitioned activations] With `activations.partition` each rank of a tensor group keeps an equal part of what
// a recomputed layer read, which all of them have alike, and the ranks gather it before they compute the layer again.
// (P_a of ZeRO-R: Rajbhandari et al., arXiv 1910.02054)
#pragma once
#include <strata/group.hpp>
#include <strata/model.hpp>

#include <vector>

namespace strata::runtime {

// Of this rank's part of tensors of these shapes: one-dimensional.
std::vector<TensorShape> shapes_of_parts(const std::vector<TensorShape>& whole, int ranks);
// Copies: this rank's part of each tensor, the last ranks' filled up with zeros.
Tensors parts_of(const Tensors& whole, const Group& group);
// The tensors again. [collective]
Tensors gather_parts(const Tensors& parts, const std::vector<TensorShape>& whole, Group& group);

}  // namespace strata::runtime
