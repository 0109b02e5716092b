#pragma once
#include <ATen/core/Tensor.h>
#include <strata/error.hpp>

namespace strata {

// Calls work(Scalar{}, Wide{}) with the C++ types of a tensor's elements and of the arithmetic on them: fp32, and fp64
// for fp64.
template <class Work>
void with_types_of(const at::Tensor& tensor, Work&& work) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return work(float{}, float{});
    case at::kDouble:
      return work(double{}, double{});
    case at::kBFloat16:
      return work(at::BFloat16{}, float{});
    case at::kHalf:
      return work(at::Half{}, float{});
    default:
      throw Bug("a tensor of fp32, fp64, bf16 or fp16 is required");
  }
}

inline at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace strata
