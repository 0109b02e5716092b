// The launches of the sum of squares: tensors go to the first pass in batches, since a launch's arguments are limited.
#include "squares_kernel.cuh"

namespace strata::cuda_device {

const char* launch_sum_of_squares(const std::vector<SquaresTensor>& tensors, double* partial, double* result,
                                  void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  std::int64_t chunks = 0;
  for (std::size_t at = 0; at < tensors.size();) {
    SquaresBatch batch;
    const std::int64_t first_chunk = chunks;
    for (; at < tensors.size() && batch.length < tensors_in_batch; ++at) {
      batch.tensors[batch.length++] = tensors[at];
      chunks = tensors[at].first_chunk + (tensors[at].count + squares_chunk - 1) / squares_chunk;
    }
    squares_kernel<<<static_cast<unsigned>(chunks - first_chunk), squares_threads, 0, cuda_stream>>>(batch, first_chunk,
                                                                                                     partial);
  }
  squares_total_kernel<<<1, squares_threads, 0, cuda_stream>>>(partial, chunks, result);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace strata::cuda_device
