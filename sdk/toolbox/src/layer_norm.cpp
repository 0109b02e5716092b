#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/toolbox/gradient.hpp>
#include <strata/toolbox/layer_norm.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "half_precision.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// libtorch's CPU kernel keeps statistics in the weight's dtype, so half-precision weights go in as fp32. Its CUDA
// kernel wants weights in the dtype of x and keeps fp32 statistics anyway.
at::Tensor kernel_weight(const at::Tensor& weight) {
  return weight.is_cuda() || weight.scalar_type() == at::kDouble ? weight : weight.to(at::kFloat);
}

// [Note: sums of layer norm] libtorch's CPU kernel adds up the gradients of weight and bias in the dtype of x, one sum
// a thread. In bf16 a sum of 2048 rows is then off by 5 %, of 16384 by 14 %, and in every dtype it depends on the
// number of threads. Here they are summed in fp32, by blocks of so many rows first.
constexpr std::int64_t rows_of_block = 32;

constexpr std::int64_t lanes = 16;  // independent sums, so that the compiler may use vectors

// x and dy of one row, and what the forward kept of it.
struct Row {
  const float* x;
  const float* dy;
  float mean;
  float scale;
  std::int64_t n;
};

// The gradient of the row is written, those of weight and bias are added to.
STRATA_VECTOR_CLONES void backward_of_row(const Row& row, const float* __restrict weight, float* __restrict dx,
                                          float* __restrict dweight, float* __restrict dbias) {
  const float mean = row.mean, scale = row.scale;
  float plain[lanes] = {}, along[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    for (std::int64_t k = 0; k < lanes; ++k) {
      const float g = row.dy[i + k] * weight[i + k];
      plain[k] += g;
      along[k] += g * ((row.x[i + k] - mean) * scale);
    }
  }
  for (; i < row.n; ++i) {
    const float g = row.dy[i] * weight[i];
    plain[0] += g;
    along[0] += g * ((row.x[i] - mean) * scale);
  }
  for (std::int64_t k = 1; k < lanes; ++k) {
    plain[0] += plain[k];
    along[0] += along[k];
  }
  const float of_all = plain[0] / static_cast<float>(row.n), of_x = along[0] / static_cast<float>(row.n);
  const float *const __restrict x = row.x, *const __restrict dy = row.dy;
  for (i = 0; i < row.n; ++i) {
    const float g = dy[i], normalized = (x[i] - mean) * scale;
    dweight[i] += g * normalized;
    dbias[i] += g;
    dx[i] = scale * (g * weight[i] - of_all - normalized * of_x);
  }
}

// x, dy, dx [rows, n] on the CPU; mean and scale [rows], weight [n] and sums [blocks, 2, n] in fp32.
template <class Scalar>
void backward_on_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                     const at::Tensor& weight, const at::Tensor& dx, const at::Tensor& sums) {
  const std::int64_t n = weight.numel(), rows = mean.numel();
  const Scalar *const gradients = dy.const_data_ptr<Scalar>(), *const values = x.const_data_ptr<Scalar>();
  const float *const means = mean.const_data_ptr<float>(), *const scales = scale.const_data_ptr<float>();
  const float* const factors = weight.const_data_ptr<float>();
  Scalar* const into = dx.mutable_data_ptr<Scalar>();
  float* const all_sums = sums.mutable_data_ptr<float>();
  at::parallel_for(0, sums.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> wide(static_cast<std::size_t>(std::is_same_v<Scalar, float> ? 0 : 3 * n));
    for (std::int64_t i = begin * rows_of_block; i < std::min(end * rows_of_block, rows); ++i) {
      float* const sum = all_sums + i / rows_of_block * 2 * n;
      if constexpr (std::is_same_v<Scalar, float>) {
        backward_of_row({values + i * n, gradients + i * n, means[i], scales[i], n}, factors, into + i * n, sum,
                        sum + n);
      } else {
        float *const wide_x = wide.data(), *const wide_dy = wide_x + n, *const wide_dx = wide_dy + n;
        widen(values + i * n, wide_x, n);
        widen(gradients + i * n, wide_dy, n);
        backward_of_row({wide_x, wide_dy, means[i], scales[i], n}, factors, wide_dx, sum, sum + n);
        narrow(wide_dx, into + i * n, n);
      }
    }
  });
}

void backward_on_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                     const at::Tensor& weight, const at::Tensor& dx, const at::Tensor& sums) {
  switch (x.scalar_type()) {
    case at::kBFloat16:
      return backward_on_cpu<at::BFloat16>(dy, x, mean, scale, weight, dx, sums);
    case at::kHalf:
      return backward_on_cpu<at::Half>(dy, x, mean, scale, weight, dx, sums);
    default:
      return backward_on_cpu<float>(dy, x, mean, scale, weight, dx, sums);
  }
}

// A libtorch without Python has no meta kernels of layer norm: on meta tensors both directions only make the results.
class LayerNorm : public torch::autograd::Function<LayerNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double epsilon) {
    at::Tensor y, mean, scale;
    if (x.is_meta()) {
      std::vector<std::int64_t> rows(x.sizes().begin(), x.sizes().end());
      rows.back() = 1;
      y = at::empty_like(x);
      mean = at::empty(rows, x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
      scale = at::empty_like(mean);
    } else {
      std::tie(y, mean, scale) =
          at::native_layer_norm(x, weight.sizes(), kernel_weight(weight), kernel_weight(bias), epsilon);
    }
    context->save_for_backward({x, weight, bias, mean, scale});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor dy = gradients[0].contiguous(), factors = kernel_weight(weight);
    at::Tensor x_gradient, weight_gradient, bias_gradient;
    if (x.is_cuda() || (x.is_cpu() && x.scalar_type() == at::kDouble)) {
      std::tie(x_gradient, weight_gradient, bias_gradient) = at::native_layer_norm_backward(
          dy, x, weight.sizes(), saved[3], saved[4], factors, kernel_weight(bias), {true, true, true});
    } else {
      x_gradient = at::empty_like(x);
      at::Tensor sums =
          at::zeros({(saved[3].numel() + rows_of_block - 1) / rows_of_block, 2, weight.numel()}, saved[3].options());
      if (x.is_cpu()) backward_on_cpu(dy, x, saved[3], saved[4], factors.contiguous(), x_gradient, sums);
      sums = sums.sum(0);
      weight_gradient = sums[0];
      bias_gradient = sums[1];
    }
    return {x_gradient, accumulate_gradient(weight, weight_gradient), accumulate_gradient(bias, bias_gradient), {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return LayerNorm::apply(x.contiguous(), weight, bias, epsilon);
}

}  // namespace strata
