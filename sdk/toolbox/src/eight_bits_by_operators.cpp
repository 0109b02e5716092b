#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/constant_pad_nd.h>
#include <strata/toolbox/eight_bits.hpp>

namespace strata::by_operators {

at::Tensor largest_magnitude(const at::Tensor& x) {
  return x.abs().amax().to(at::kFloat);
}

// By the bits: the exponent, and one more where the mantissa exceeds the 1.75 of the format's largest number. It is
// taken from that number's exponent; 254 is twice the bias.
at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format) {
  const at::Tensor exponent = magnitudes.view(at::kInt).add(0x1FFFFF).bitwise_right_shift(23);
  const at::Tensor power = exponent.neg().add(254 + format.exponent).clamp(1, 227).bitwise_left_shift(23);
  return power.view(at::kFloat).add(magnitudes.mul(0.0));  // NaN where it is not finite
}

// A conversion alone would turn too large values into NaN, or into the format's next power of two.
at::Tensor converted(const at::Tensor& x, const at::Tensor& scale, const EightBits& format) {
  return x.to(at::kFloat).mul(scale).clamp(-format.largest(), format.largest()).to(format.dtype);
}

at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format) {
  return by_operators::converted(x, scale, format).to(at::kFloat).div(scale).to(x.scalar_type());
}

void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes) {
  bytes.view(format.dtype).copy_(by_operators::converted(x, scale, format));
}

void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into) {
  into.copy_(bytes.view(format.dtype).to(at::kFloat).div(scale));
}

at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format) {
  const std::int64_t columns = x.size(1), missing = (scaled_together - columns % scaled_together) % scaled_together;
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
  const at::Tensor blocks = whole.reshape({x.size(0), -1, scaled_together});
  const at::Tensor scales = by_operators::power_of_two(blocks.abs().amax(-1, true).to(at::kFloat), format);
  return by_operators::rounded(blocks, scales, format).reshape(whole.sizes()).narrow(1, 0, columns).contiguous();
}

}  // namespace strata::by_operators
