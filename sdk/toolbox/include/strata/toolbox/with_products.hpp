// A precision policy with the products of product.hpp, which make a 16-bit policy fast on a CPU.
#pragma once
#include <strata/precision_policy.hpp>
#include <strata/toolbox/product.hpp>

namespace strata {

template <typename Policy>
class WithProducts : public Policy {
 public:
  using Policy::Policy;
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    return strata::linear(x, w.tensor, b);
  }
  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override { return product(dy, w.tensor); }
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& /*w*/,
                           const at::Tensor& into, bool first) override {
    add_product(into, dy.t(), x, first);
  }
};

}  // namespace strata
