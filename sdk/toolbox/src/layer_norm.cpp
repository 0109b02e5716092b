#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/toolbox/gradient.hpp>
#include <strata/toolbox/layer_norm.hpp>

#include "norm_gradients.hpp"
#include "wide_rows.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// libtorch's CPU kernel keeps statistics in the weight's dtype, so half-precision weights go in as fp32. Its CUDA
// kernel requires weights in the dtype of x and keeps fp32 statistics anyway.
at::Tensor kernel_weight(const at::Tensor& weight) {
  return weight.is_cuda() || weight.scalar_type() == at::kDouble ? weight : weight.to(at::kFloat);
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
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor x_gradient, weight_gradient, bias_gradient;
    if (x.is_meta() || takes_wide_rows(x)) {
      const NormGradients found = norm_gradients(dy, x, saved[3], saved[4], weight);
      x_gradient = found.x;
      weight_gradient = found.sums[0];
      bias_gradient = found.sums[1];
    } else {
      std::tie(x_gradient, weight_gradient, bias_gradient) = at::native_layer_norm_backward(
          dy, x, weight.sizes(), saved[3], saved[4], kernel_weight(weight), kernel_weight(bias), {true, true, true});
    }
    return {x_gradient, accumulate_gradient(weight, weight_gradient), accumulate_gradient(bias, bias_gradient), {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  return LayerNorm::apply(x.contiguous(), weight, bias, epsilon);
}

}  // namespace strata
