#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <strata/toolbox/sign_code.hpp>

namespace strata::toolbox {
namespace {
at::Tensor powers(const at::TensorOptions& options) {
  return at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::TensorOptions().dtype(at::kByte)).to(options.device());
}
}  // namespace

void write_bits(const at::Tensor& set, const at::Tensor& bytes) {
  if (set.numel() == 0) return;
  at::Tensor bits = at::zeros({8 * bytes.numel()}, set.options().dtype(at::kByte));
  bits.narrow(0, 0, set.numel()).copy_(set);
  bytes.copy_(bits.view({-1, 8}).mul(powers(set.options())).sum(1, false, at::kByte));
}

at::Tensor read_bits(const at::Tensor& bytes, std::int64_t elements) {
  const at::Tensor set = bytes.unsqueeze(1).bitwise_and(powers(bytes.options())).ne(0);
  return set.view({-1}).narrow(0, 0, elements);
}

void write_signs(const at::Tensor& values, const at::Tensor& bytes) {
  write_bits(values >= 0, bytes);
}

at::Tensor read_signs(const at::Tensor& bytes, std::int64_t elements) {
  return read_bits(bytes, elements).to(at::kFloat).mul(2.0).sub(1.0);
}

at::Tensor scale_of(const at::Tensor& values, const at::Tensor& counts) {
  const at::Tensor many = counts.sum(at::kDouble).clamp_min(1.0);
  return values.to(at::kDouble).mul(counts).square().sum().div(many).sqrt().to(at::kFloat).view({1});
}

}  // namespace strata::toolbox
