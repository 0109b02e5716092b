#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/toolbox/product.hpp>

#include "bf16_product.hpp"
#include "widened_product.hpp"

#include <algorithm>
#include <optional>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a product that is added in another dtype.
constexpr std::int64_t block = 768;

// The conversion that the CPU's add_() would make inside, hidden from dry runs.
at::Tensor wide_copy(const at::Tensor& part, at::ScalarType wide) {
  return part.is_cpu() || part.is_meta() ? part.to(wide) : part;
}

class LinearInFp32 : public torch::autograd::Function<LinearInFp32> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b) {
    std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
    shape.back() = w.size(0);
    const at::Tensor y = at::empty(shape, x.options());
    widened_product(y.view({-1, w.size(0)}), x.reshape({-1, w.size(1)}), w.t(), b.value_or(at::Tensor()),
                    /*add=*/false);
    context->save_for_backward({x, w});
    context->saved_data["biased"] = b.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], dy = gradients[0].reshape({-1, w.size(0)});
    at::Tensor x_gradient, w_gradient, b_gradient;
    if (context->needs_input_grad(0)) x_gradient = product(dy, w).view(x.sizes());
    if (context->needs_input_grad(1)) w_gradient = product(dy.t(), x.reshape({-1, w.size(1)}));
    if (context->saved_data["biased"].toBool() && context->needs_input_grad(2)) b_gradient = dy.sum(0);
    return {x_gradient, w_gradient, b_gradient};
  }
};

}  // namespace

bool multiplied_in_fp32(const at::Tensor& tensor) {
  static const bool with_bf16 = !multiplies_bf16_faster();
  const at::ScalarType dtype = tensor.scalar_type();
  return (tensor.is_cpu() || tensor.is_meta()) && (dtype == at::kHalf || (dtype == at::kBFloat16 && with_bf16));
}

void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  if (multiplied_in_fp32(left)) return widened_product(result, left, right, {}, /*add=*/false);
  at::Tensor out = result;
  at::mm_out(out, left, right);
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  if (!multiplied_in_fp32(left)) return at::mm(left, right);
  const at::Tensor result = at::empty({left.size(0), right.size(1)}, left.options());
  widened_product(result, left, right, {}, /*add=*/false);
  return result;
}

void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first) {
  if (first && target.dtype() == left.dtype()) return product_out(target, left, right);
  if (target.dtype() == left.dtype() && !multiplied_in_fp32(left)) {
    target.addmm_(left, right);
    return;
  }
  if (target.scalar_type() == at::kFloat && multiplied_in_fp32(left))
    return widened_product(target, left, right, {}, /*add=*/!first);
  if (add_bf16_product(target, left, right, first)) return;
  // By parts, as the CPU adds another dtype by way of a wide copy. Neither that nor the product is as large as the
  // target.
  for (std::int64_t begin = 0; begin < target.size(0); begin += block) {
    const std::int64_t length = std::min(block, target.size(0) - begin);
    const at::Tensor part = product(left.narrow(0, begin, length), right);
    const at::Tensor rows = target.narrow(0, begin, length);
    first ? rows.copy_(part) : rows.add_(wide_copy(part, target.scalar_type()));
  }
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const std::optional<at::Tensor> bias = b.defined() ? std::optional<at::Tensor>(b) : std::nullopt;
  if (!multiplied_in_fp32(x)) return at::linear(x, w, bias);
  strata_check(x.dim() > 0 && w.dim() == 2 && x.size(-1) == w.size(1) && x.dtype() == w.dtype() &&
                   (!b.defined() || (b.dim() == 1 && b.size(0) == w.size(0))),
               "linear: x is [..., in], w [out, in] of the same dtype, b [out]");
  return LinearInFp32::apply(x, w, bias);
}

}  // namespace strata
