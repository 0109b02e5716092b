#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::muon {

enum class Coefficients {
  Quintic,       // Jordan et al.: (3.4445, -4.7750, 2.0315) in every step; singular values end between 0.7 and 1.2
  PolarExpress,  // Amsel et al., arXiv:2505.16932: another three for each of five steps, the last for all after them
};

// The orthogonal factor U V^T of a matrix U S V^T, about, by Newton-Schulz steps on the matrix divided by its norm:
//   A = X X^T;  X = a X + (b A + c A A) X
// A new fp32 tensor. The products are computed in `dtype`. Of a matrix of zeros it is zero.
at::Tensor orthogonalize(const at::Tensor& matrix, std::int64_t steps, Coefficients coefficients, at::ScalarType dtype);

}  // namespace strata::muon
