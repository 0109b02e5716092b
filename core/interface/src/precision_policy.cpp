#include <ATen/ops/linear.h>
#include <strata/precision_policy.hpp>

namespace strata {

PrecisionPolicy::~PrecisionPolicy() = default;
std::string PrecisionPolicy::stop_reason() const {
  return "the precision policy asked the run to stop and gave no reason";
}
at::Tensor PrecisionPolicy::linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  return at::linear(x, w, b.defined() ? std::optional<at::Tensor>(b) : std::nullopt);
}

}  // namespace strata
