// Sums over ranks in host memory.
#include <ATen/ATen.h>
#include <strata/toolbox/element_pass.hpp>
#include <strata/toolbox/reduction.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// In fp32 or wider, in the order of the parts, and rounded once.
at::Tensor reference(const std::vector<at::Tensor>& parts, Fold fold) {
  const at::ScalarType dtype = parts[0].scalar_type();
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  at::Tensor result = parts[0].to(narrow ? at::kFloat : dtype);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor next = parts[i].to(result.scalar_type());
    result = fold == Fold::Sum ? result + next : at::maximum(result, next);
  }
  return result.to(dtype);
}

// Equal numbers, and NaN in the same places.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::isclose(a.to(at::kDouble), b.to(at::kDouble), 0.0, 0.0, /*equal_nan=*/true).all().item<bool>();
}

at::Tensor drawn(std::int64_t elements, at::ScalarType dtype) {
  at::Tensor values = at::randn({elements}).mul_(at::randint(-20, 20, {elements}).exp2()).mul_(100).to(dtype);
  if (!values.is_floating_point() || elements < 4) return values;
  values.select(0, elements / 2).fill_(std::numeric_limits<double>::infinity());
  values.select(0, elements / 4).fill_(std::numeric_limits<double>::quiet_NaN());
  return values;
}

}  // namespace

TEST_CASE("parts are reduced in their order, in every dtype, and the output may be one of them") {
  at::manual_seed(5);
  const Fold fold = GENERATE(Fold::Sum, Fold::Max);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong})
    for (const std::int64_t elements : {0, 1, 31, 1023, 1024, 2500})
      for (const std::size_t count : {1, 2, 3, 5}) {
        std::vector<at::Tensor> parts;
        for (std::size_t i = 0; i < count; ++i)
          parts.push_back(drawn(elements, dtype).roll(static_cast<std::int64_t>(7 * i)));
        const at::Tensor wanted = reference(parts, fold);
        for (std::size_t into = 0; into <= count; ++into) {  // `count`: into none of them
          CAPTURE(dtype, elements, count, into);
          std::vector<at::Tensor> given;
          std::vector<const std::byte*> list;
          for (const at::Tensor& part : parts) list.push_back(bytes_of(given.emplace_back(part.clone())));
          const at::Tensor output = into < count ? given[into] : at::empty_like(wanted);
          reduce_in_rank_order(bytes_of(output), list, elements, {dtype, fold});
          CHECK(same(output, wanted));
        }
      }
}

TEST_CASE("squares of 16-bit numbers are summed as those of the same numbers in fp32") {
  at::manual_seed(5);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf})
    for (const std::int64_t elements : {0, 1, 1023, 1024, 5000}) {
      CAPTURE(dtype, elements);
      const at::Tensor values = at::randn({elements}).to(dtype), wide = values.to(at::kFloat);
      const double found = dtype == at::kHalf ? sum_of_squares(values.const_data_ptr<at::Half>(), elements)
                                              : sum_of_squares(values.const_data_ptr<at::BFloat16>(), elements);
      const double wanted = wide.to(at::kDouble).square().sum().item<double>();
      CHECK(std::abs(found - wanted) <= 1e-15 * static_cast<double>(elements) * wanted);
    }
}
