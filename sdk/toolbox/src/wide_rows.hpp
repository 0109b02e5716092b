// Numbers of fp32, bf16 or fp16 as loops of vector code see them, in fp32: where they are, or in a buffer that is
// widened before and narrowed after.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/error.hpp>

#include <type_traits>

#include "half_precision.hpp"

namespace strata {

template <class Scalar>
const float* widened(const Scalar* from, float* buffer, std::int64_t count) {
  if constexpr (std::is_same_v<Scalar, float>) {
    return from;
  } else {
    widen(from, buffer, count);
    return buffer;
  }
}

// Where results go that narrow_into() then brings to `to`.
template <class Scalar>
float* room_for(Scalar* to, float* buffer) {
  if constexpr (std::is_same_v<Scalar, float>)
    return to;
  else
    return buffer;
}
template <class Scalar>
void narrow_into(Scalar* to, const float* results, std::int64_t count) {
  if constexpr (!std::is_same_v<Scalar, float>) narrow(results, to, count);
}

// Calls work(Scalar{}) with the C++ type of a tensor's elements.
template <class Work>
void with_type_of(const at::Tensor& tensor, Work&& work) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return work(float{});
    case at::kBFloat16:
      return work(at::BFloat16{});
    case at::kHalf:
      return work(at::Half{});
    default:
      throw Bug("a tensor of fp32, bf16 or fp16 is required");
  }
}

// Tensors that such loops take; others go through libtorch's operators.
inline bool takes_wide_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() != at::kDouble;
}

}  // namespace strata
