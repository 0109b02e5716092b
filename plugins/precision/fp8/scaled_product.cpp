#include "scaled_product.hpp"

#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

namespace strata::fp8 {

std::string obstacle(at::Device device) {
  if (!device.is_cuda()) return device.str() + " does not support 8-bit products";
  try {
    const at::TensorOptions options = at::TensorOptions().device(device);
    const Packed one(at::zeros({16, 16}, options.dtype(at::kBFloat16)), at::ones({}, options.dtype(at::kFloat)), e4m3);
    scaled_product(one, one, {}, true);
    return "";
  } catch (const c10::Error& error) {
    return "of " + device.str() + " libtorch reports: " + error.msg();
  }
}

Packed::Packed(const at::Tensor& x, const at::Tensor& scale, const EightBits& format)
    : numbers(by_operators::converted(x.contiguous(), scale, format)), unit(scale.reciprocal()) {}

Packed Packed::transposed() const {
  return {numbers.t().contiguous(), unit};
}

// libtorch requires the second matrix by columns.
at::Tensor scaled_product(const Packed& left, const Packed& right, const at::Tensor& bias, bool fast) {
  const std::optional<at::Tensor> added = bias.defined() ? std::optional(bias) : std::nullopt;
  return at::_scaled_mm(left.numbers, right.numbers.t(), left.unit, right.unit, added, {}, at::kBFloat16, fast);
}

}  // namespace strata::fp8
