#pragma once
#include "kernels.hpp"
#include "number_formats.cuh"

namespace strata::cuda_device {

inline constexpr int squares_threads = 512;  // a power of two
inline constexpr int tensors_in_batch = 96;  // 3 KiB of the 4 KiB that a launch's arguments may take

struct SquaresBatch {
  SquaresTensor tensors[tensors_in_batch];
  int length = 0;
};

// The tensor that chunk `chunk` belongs to: the last one that begins at or before it.
__device__ inline const SquaresTensor& tensor_of(const SquaresBatch& batch, std::int64_t chunk) {
  int low = 0;
  for (int high = batch.length; high - low > 1;) {
    const int middle = (low + high) / 2;
    if (batch.tensors[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  return batch.tensors[low];
}

// This thread's part of elements [begin, end). A square of an fp32 number is exact in fp64.
template <typename Number>
__device__ inline double squares_of_thread(const void* data, std::int64_t begin, std::int64_t end) {
  const auto* numbers = static_cast<const Number*>(data);
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t i = begin + threadIdx.x; i < end; i += squares_threads) {
    const double value = widen(numbers[i]);
    sum += value * value;
  }
  return sum;
}

// The sum over the block's threads, in a tree of fixed shape; valid in thread 0. Every thread of the block calls it,
// once a kernel.
__device__ inline double sum_over_block(double value) {
  __shared__ double sums[squares_threads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = squares_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

// First pass: one block a chunk; block b does chunk first_chunk + b. Which thread adds which element depends on its
// place in the tensor alone.
__global__ void __launch_bounds__(squares_threads)
    squares_kernel(const SquaresBatch batch, std::int64_t first_chunk, double* partial) {
  const std::int64_t chunk = first_chunk + blockIdx.x;
  const SquaresTensor& tensor = tensor_of(batch, chunk);
  const std::int64_t begin = (chunk - tensor.first_chunk) * squares_chunk;
  const std::int64_t end = begin + squares_chunk < tensor.count ? begin + squares_chunk : tensor.count;
  double sum = 0.0;
  if (tensor.format == Format::Fp32) sum = squares_of_thread<float>(tensor.data, begin, end);
  if (tensor.format == Format::Bf16) sum = squares_of_thread<Bf16>(tensor.data, begin, end);
  if (tensor.format == Format::Fp16) sum = squares_of_thread<Fp16>(tensor.data, begin, end);
  const double total = sum_over_block(sum);
  if (threadIdx.x == 0) partial[chunk] = total;
}

// Second pass: one block adds the chunks' sums.
__global__ void __launch_bounds__(squares_threads)
    squares_total_kernel(const double* partial, std::int64_t chunks, double* result) {
  double sum = 0.0;
  for (std::int64_t chunk = threadIdx.x; chunk < chunks; chunk += squares_threads) sum += partial[chunk];
  const double total = sum_over_block(sum);
  if (threadIdx.x == 0) *result = total;
}

}  // namespace strata::cuda_device
