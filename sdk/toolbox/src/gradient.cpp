#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <strata/toolbox/gradient.hpp>

namespace strata {

bool accumulates_in_place(const at::Tensor& variable) {
  return variable.defined() && variable.is_leaf() && variable.requires_grad() && variable.grad().defined();
}

at::Tensor accumulate_gradient(const at::Tensor& variable, const at::Tensor& gradient) {
  if (!gradient.defined() || !accumulates_in_place(variable)) return gradient;
  const at::NoGradGuard no_gradients;
  variable.mutable_grad().add_(gradient);
  return {};
}

}  // namespace strata
