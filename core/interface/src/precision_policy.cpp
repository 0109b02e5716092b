#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <strata/precision_policy.hpp>

namespace strata {

PrecisionPolicy::~PrecisionPolicy() = default;
void PrecisionPolicy::attach(const std::vector<LayerInfo>& /*layers*/) {}
std::string PrecisionPolicy::stop_reason() const {
  return "the precision policy asked the run to stop and gave no reason";
}
bool PrecisionPolicy::searches_scale() const {
  return false;
}
at::Tensor PrecisionPolicy::maxima() {
  return {};
}
at::Tensor PrecisionPolicy::linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) {
  return at::linear(x, w.tensor, b.defined() ? std::optional<at::Tensor>(b) : std::nullopt);
}
at::Tensor PrecisionPolicy::input_gradient(const at::Tensor& dy, const Parameter& w) {
  return at::mm(dy, w.tensor);
}
void PrecisionPolicy::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& /*w*/,
                                          const at::Tensor& into, bool first) {
  if (into.scalar_type() != x.scalar_type()) {
    const at::Tensor product = at::mm(dy.t(), x);
    first ? into.copy_(product) : into.add_(product);
  } else if (first) {
    at::Tensor result = into;
    at::mm_out(result, dy.t(), x);
  } else {
    into.addmm_(dy.t(), x);
  }
}

}  // namespace strata
