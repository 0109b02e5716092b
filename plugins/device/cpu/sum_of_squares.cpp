// strata::sum_of_squares for the host's processors.
//
// [Note: a norm that does not depend on how the gradient is cut] Shards, buckets and offloaded ranges cut a gradient
// into pieces. With sums in fp32 two ways of cutting differ in the eighth digit; clipping multiplies every gradient by
// the result, so a bucket size would change the weights. Here the square of an fp32 number is exact in fp64, and sums
// differ only in the sixteenth digit; the engine rounds the norm to fp32 before it uses it.
#include <ATen/Parallel.h>
#include <ATen/ops/scalar_tensor.h>
#include <strata/operators.hpp>
#include <strata/toolbox/element_pass.hpp>

#include <algorithm>
#include <vector>

#include <torch/library.h>

namespace {

constexpr std::int64_t chunk_length = 16384;  // elements per partial sum

template <typename Number>
double squares_of_tensor(const at::Tensor& tensor) {
  const Number* const values = tensor.const_data_ptr<Number>();
  const std::int64_t count = tensor.numel();
  std::vector<double> partial(static_cast<std::size_t>((count + chunk_length - 1) / chunk_length));
  at::parallel_for(0, std::ssize(partial), 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * chunk_length;
      partial[static_cast<std::size_t>(chunk)] =
          strata::sum_of_squares(values + first, std::min(chunk_length, count - first));
    }
  });
  double sum = 0.0;
  for (const double some : partial) sum += some;
  return sum;
}

at::Tensor sum_of_squares(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "strata::sum_of_squares: at least one tensor is needed");
  double sum = 0.0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(),
                "strata::sum_of_squares: tensors are contiguous and on one device");
    switch (tensor.scalar_type()) {
      case at::kFloat:
        sum += squares_of_tensor<float>(tensor);
        break;
      case at::kBFloat16:
        sum += squares_of_tensor<at::BFloat16>(tensor);
        break;
      case at::kHalf:
        sum += squares_of_tensor<at::Half>(tensor);
        break;
      default:
        TORCH_CHECK(false, "strata::sum_of_squares: tensors are fp32, bf16 or fp16; one is ", tensor.scalar_type());
    }
  }
  return at::scalar_tensor(sum, at::kDouble);
}

}  // namespace

TORCH_LIBRARY_IMPL(strata, CPU, library) {
  library.impl("sum_of_squares", TORCH_FN(sum_of_squares));
}
