// 16-bit numbers in memory and fp32 in registers. Device code; the tests compile it for the processor
// (tests/unit/cuda/on_host.hpp).
#pragma once
#include <cstdint>
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace strata::cuda_device {

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

// Four numbers that one instruction loads or stores; it begins at a multiple of its size.
template <typename Number>
struct alignas(4 * sizeof(Number)) Pack {
  Number values[4];
};

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}
__device__ inline float widen(Fp16 value) {
  return __half2float(__ushort_as_half(value.bits));
}

// To nearest, ties to even, as the toolbox's element_pass rounds on the processor; NaN stays NaN.
template <typename Number>
__device__ Number narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return {static_cast<std::uint16_t>(value == value ? rounded : 0x7FC0U)};
}
template <>
__device__ inline Fp16 narrow<Fp16>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}

}  // namespace strata::cuda_device
