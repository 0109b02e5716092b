#include "checkpoint/finite.hpp"

#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strata::checkpoint {
namespace {

// `exponent`: the bits that are all set in NaN and infinity, and in no other value. Without a branch in the inner loop,
// so that it is vectorized.
template <typename Bits>
bool is_finite(const void* values, std::int64_t count, Bits exponent) {
  constexpr std::int64_t block = 4096;
  const auto* const bits = static_cast<const Bits*>(values);
  for (std::int64_t begin = 0; begin < count; begin += block) {
    Bits found = 0;
    for (std::int64_t i = begin; i < std::min(begin + block, count); ++i)
      found = static_cast<Bits>(found | static_cast<Bits>((bits[i] & exponent) == exponent));
    if (found != 0) return false;
  }
  return true;
}

}  // namespace

bool is_finite(const at::Tensor& values) {
  if (!values.is_floating_point() || values.numel() == 0) return true;
  if (values.is_cpu() && values.is_contiguous()) {
    const void* const data = values.const_data_ptr();
    switch (values.scalar_type()) {
      case at::kFloat:
        return is_finite<std::uint32_t>(data, values.numel(), 0x7f800000U);
      case at::kBFloat16:
        return is_finite<std::uint16_t>(data, values.numel(), 0x7f80U);
      case at::kHalf:
        return is_finite<std::uint16_t>(data, values.numel(), 0x7c00U);
      case at::kDouble:
        return is_finite<std::uint64_t>(data, values.numel(), 0x7ff0000000000000U);
      default:
        break;
    }
  }
  const bool narrow = c10::elementSize(values.scalar_type()) == 1;  // 8-bit floats have no isfinite of their own
  return at::isfinite(narrow ? values.to(at::kFloat) : values).all().item<bool>();
}

std::string not_finite_text(const at::Tensor& values, std::int64_t begin, const std::string& name) {
  if (is_finite(values)) return "";
  const at::Tensor flat = values.detach().cpu().to(at::kFloat).contiguous().view(-1);
  std::int64_t at = 0;
  while (at + 1 < flat.numel() && std::isfinite(flat.const_data_ptr<float>()[at])) ++at;
  return fmt::format("{} holds NaN or infinity ({} at element {})", name, flat.const_data_ptr<float>()[at], begin + at);
}

void check_finite(const at::Tensor& values, std::int64_t begin, const Place& place, const std::string& name) {
  const std::string text = not_finite_text(values, begin, name);
  if (!text.empty()) throw UserError(place, text + not_finite_remedy);
}

}  // namespace strata::checkpoint
