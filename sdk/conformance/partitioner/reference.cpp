#include "conformance/partitioner/reference.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace strata::conformance {

namespace {

// Sums of this many bits are exact in it. fp16 has 11, but not the range to scale them by powers of two besides.
int exact_bits(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 8 : dtype == at::kHalf ? 9 : 24;
}

std::uint64_t key_of(int a, int b = 0, int c = 0) {
  return mixed(mixed(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)), static_cast<std::uint64_t>(c));
}

}  // namespace

at::Tensor PartitionReference::values(int flat, int number) {
  const std::lock_guard lock(mutex_);
  at::Tensor& known = values_[{flat, number}];
  if (known.defined()) return known;
  const FlatParameterInfo& of = info(flat);
  const std::uint64_t key = key_of(flat, number, 1);
  if (tolerance_ == 0.0) {
    known = at::empty({of.elements}, at::TensorOptions().dtype(of.dtypes.parameter));
    auto* const bytes = static_cast<std::byte*>(known.mutable_data_ptr());
    const std::size_t width = known.element_size();
    for (std::int64_t i = 0; i < of.elements; ++i) {
      const std::uint64_t bits = mixed(key, static_cast<std::uint64_t>(i));
      std::memcpy(bytes + static_cast<std::size_t>(i) * width, &bits, width);
    }
    return known;
  }
  const at::Tensor numbers = at::empty({of.elements}, at::TensorOptions().dtype(at::kFloat));
  auto* const to = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < of.elements; ++i)
    to[i] = static_cast<float>(mixed(key, static_cast<std::uint64_t>(i)) % 101);
  return known = numbers.to(of.dtypes.parameter);
}

at::Tensor PartitionReference::gradient(int flat, int rank, int number) const {
  const FlatParameterInfo& of = info(flat);
  const bool is_exact = tolerance_ == 0.0;
  const int bits = std::min(exact_bits(of.dtypes.gradient), exact_bits(of.dtypes.reduction));
  const bool is_half = of.dtypes.gradient == at::kHalf || of.dtypes.reduction == at::kHalf;
  const std::int64_t limit = is_exact ? std::int64_t{1} << bits : 64;
  const std::int64_t most = std::max<std::int64_t>(limit / world_.gradients_at_once, 1);
  const std::int64_t one_in = (world_.gradients_at_once + limit - 1) / limit;  // how few of all are not 0
  const int exponents = !is_exact ? 0 : is_half ? 2 : 40;
  const at::Tensor made = at::empty({of.elements}, at::TensorOptions().dtype(at::kFloat));
  auto* const to = made.mutable_data_ptr<float>();
  const std::uint64_t key = key_of(flat, number, rank + 2), place = key_of(flat);
  for (std::int64_t i = 0; i < of.elements; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const std::uint64_t random = mixed(key, at), of_place = mixed(place, at);
    auto value =
        static_cast<float>(static_cast<std::int64_t>(random % static_cast<std::uint64_t>(2 * most + 1)) - most);
    if ((static_cast<std::int64_t>(number) * world_.ranks.size() + rank + i) % one_in != 0) value = 0.0F;
    value = std::ldexp(
        value, static_cast<int>(of_place % static_cast<std::uint64_t>(2 * exponents + 1)) - (is_half ? 4 : exponents));
    const bool spoils = !world_.is_finite && mixed(key_of(flat, number), at) % 7 == 0 &&
                        static_cast<int>(of_place % static_cast<std::uint64_t>(world_.ranks.size())) == rank;
    if (spoils)
      value = of_place % 5 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                : (of_place % 2 == 0 ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
    to[i] = value;
  }
  return made.to(of.dtypes.gradient);
}

const PartitionReference::Sum& PartitionReference::sum(int flat, const std::vector<int>& numbers) {
  const std::lock_guard lock(mutex_);
  Sum& known = sums_[{flat, numbers}];
  if (known.values.defined()) return known;
  known.values = at::zeros({info(flat).elements}, at::TensorOptions().dtype(at::kDouble));
  at::Tensor magnitudes = at::zeros_like(known.values);
  for (const int number : numbers)
    for (int rank = 0; rank < world_.ranks.size(); ++rank) {
      const at::Tensor one = gradient(flat, rank, number).to(at::kDouble);
      known.values.add_(one);
      magnitudes.add_(one.abs());
    }
  // A block's numbers are written relative to the largest addend.
  known.allowed = tolerance_ * magnitudes.nan_to_num(0.0, 0.0, 0.0).max().item<double>();
  return known;
}

std::optional<std::int64_t> PartitionReference::first_wrong(const at::Tensor& found, const at::Tensor& expected,
                                                            std::optional<double> allowed) const {
  const at::Tensor is = found.detach().to(at::kDouble).reshape({-1}).contiguous(),
                   should = expected.to(at::kDouble).reshape({-1}).contiguous();
  const double bound = allowed.value_or(tolerance_ == 0.0 ? 0.0 : tolerance_ * should.abs().max().item<double>());
  // A block with a number that is not finite may become anything: the update is left out.
  const bool is_spoilt = tolerance_ > 0.0 && !should.isfinite().all().item<bool>();
  const auto *const a = is.const_data_ptr<double>(), *const b = should.const_data_ptr<double>();
  const auto is_right = [&](double x, double y) {
    if (is_spoilt) return std::isfinite(y) || !std::isfinite(x);
    return x == y || std::abs(x - y) <= bound || (std::isnan(x) && std::isnan(y));
  };
  for (std::int64_t i = 0; i < should.numel(); ++i)
    if (!is_right(a[i], b[i])) return i;
  return std::nullopt;
}

}  // namespace strata::conformance
