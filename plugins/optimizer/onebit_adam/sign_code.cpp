#include "sign_code.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace strata::onebit_adam {
namespace {
at::Tensor bits(const at::TensorOptions& options) {
  return at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::TensorOptions().dtype(at::kByte)).to(options.device());
}
}  // namespace

void write_signs(const at::Tensor& values, const at::Tensor& bytes) {
  if (values.numel() == 0) return;
  at::Tensor signs = at::zeros({8 * bytes.numel()}, values.options().dtype(at::kByte));
  signs.narrow(0, 0, values.numel()).copy_(values >= 0);
  bytes.copy_(signs.view({-1, 8}).mul(bits(values.options())).sum(1, false, at::kByte));
}

at::Tensor read_signs(const at::Tensor& bytes, std::int64_t elements) {
  const at::Tensor set = bytes.unsqueeze(1).bitwise_and(bits(bytes.options())).ne(0);
  return set.view({-1}).narrow(0, 0, elements).to(at::kFloat).mul(2.0).sub(1.0);
}

at::Tensor scale_of(const at::Tensor& values, const at::Tensor& counts) {
  const at::Tensor many = counts.sum(at::kDouble).clamp_min(1.0);
  return values.to(at::kDouble).mul(counts).square().sum().div(many).sqrt().to(at::kFloat).view({1});
}

}  // namespace strata::onebit_adam
