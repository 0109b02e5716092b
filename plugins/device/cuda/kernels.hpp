// The interface between the operators (cuda_operators.cpp, without CUDA's headers) and the kernels (*.cu, without
// libtorch's headers).
#pragma once
#include <cstdint>
#include <vector>

namespace strata::cuda_device {

enum class Format { None, Fp32, Bf16, Fp16 };

// See strata::operators::adamw_step. Pointers are to device memory.
struct AdamwArguments {
  float* master = nullptr;
  const void* gradient = nullptr;
  void* parameter = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* gradient_factor = nullptr;
  const float* apply = nullptr;
  std::int64_t count = 0;
  std::int64_t head = 0;  // elements before the first from which all arrays can be read in packs; launch_adamw sets it
  float decay = 1.0F;
  float step_size = 0.0F;
  float second_correction = 1.0F;
  float epsilon = 0.0F;
  float beta2 = 0.0F;
  float rest1 = 0.0F;  // 1 - beta1
  float rest2 = 0.0F;  // 1 - beta2
};

struct AdamwFormats {
  Format gradient = Format::Fp32;  // never None
  Format parameter = Format::None;
};

// Both launch on `stream`, a cudaStream_t of the current device, and return null or CUDA's error text.
const char* launch_adamw(AdamwArguments arguments, AdamwFormats formats, void* stream);

struct SquaresTensor {
  const void* data = nullptr;
  std::int64_t count = 0;        // at least 1
  std::int64_t first_chunk = 0;  // chunks of the tensors before it
  Format format = Format::Fp32;
};

inline constexpr std::int64_t squares_chunk = 65536;  // elements one block adds

// `partial` has one fp64 per chunk of all tensors, `result` has one.
const char* launch_sum_of_squares(const std::vector<SquaresTensor>& tensors, double* partial, double* result,
                                  void* stream);

}  // namespace strata::cuda_device
