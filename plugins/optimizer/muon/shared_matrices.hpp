// Matrices split over tensor-parallel ranks, made orthogonal whole. Each is computed by one rank: the
// parts of all go to their ranks in one exchange and come back in another, so a rank sends twice the bytes of its
// parts, and does about as much work as every other.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <functional>
#include <vector>

namespace strata::muon {

struct SharedMatrix {
  at::Tensor part;  // fp32, contiguous [rows, columns]; of every rank of the same shape
  bool by_columns;  // the parts are adjacent columns; else adjacent rows
};

// Writes into each part that of orthogonal(whole). With meta tensors nothing is computed, and as much sent. All ranks
// give the same matrices in the same order. [collective]
void orthogonalize_shared(Group& group, const std::vector<SharedMatrix>& matrices,
                          const std::function<at::Tensor(const at::Tensor& whole)>& orthogonal);

}  // namespace strata::muon
