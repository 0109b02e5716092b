#include <strata/toolbox/reduction.hpp>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace strata {

namespace {

// One block of the accumulator: small enough for the first-level cache, so each part is read once and the output
// written once.
constexpr std::int64_t block_elements = 1024;

template <typename Element>
struct AccumulatorOf {
  using type = Element;
};
template <>
struct AccumulatorOf<c10::BFloat16> {
  using type = float;
};
template <>
struct AccumulatorOf<c10::Half> {
  using type = float;
};

template <typename Number>
Number larger(Number a, Number b) {
  return a > b || a != a ? a : b;  // a NaN is kept, whichever side it is on
}

template <typename Element, Fold fold>
void reduce_blocks(std::byte* output, const std::vector<const std::byte*>& parts, std::int64_t elements) {
  using Accumulator = typename AccumulatorOf<Element>::type;
  std::array<Accumulator, block_elements> sum;
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t count = std::min(block_elements, elements - begin);
    const auto* first = reinterpret_cast<const Element*>(parts[0]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] = static_cast<Accumulator>(first[i]);
    for (std::size_t part = 1; part < parts.size(); ++part) {
      const auto* next = reinterpret_cast<const Element*>(parts[part]) + begin;
      Accumulator* total = sum.data();
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<Accumulator>(next[i]);
        total[i] = fold == Fold::Sum ? total[i] + value : larger(total[i], value);
      }
    }
    auto* result = reinterpret_cast<Element*>(output) + begin;
    for (std::int64_t i = 0; i < count; ++i) result[i] = static_cast<Element>(sum[static_cast<std::size_t>(i)]);
  }
}

template <typename Element>
void reduce_as(std::byte* output, const std::vector<const std::byte*>& parts, std::int64_t elements, Fold fold) {
  if (fold == Fold::Sum) return reduce_blocks<Element, Fold::Sum>(output, parts, elements);
  reduce_blocks<Element, Fold::Max>(output, parts, elements);
}

}  // namespace

bool reducible(at::ScalarType dtype) {
  constexpr std::array known{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong};
  return std::find(known.begin(), known.end(), dtype) != known.end();
}

void reduce_in_rank_order(std::byte* output, const std::vector<const std::byte*>& parts, std::int64_t elements,
                          Reduction reduction) {
  switch (reduction.dtype) {
    case at::kFloat:
      return reduce_as<float>(output, parts, elements, reduction.fold);
    case at::kDouble:
      return reduce_as<double>(output, parts, elements, reduction.fold);
    case at::kBFloat16:
      return reduce_as<c10::BFloat16>(output, parts, elements, reduction.fold);
    case at::kHalf:
      return reduce_as<c10::Half>(output, parts, elements, reduction.fold);
    case at::kInt:
      return reduce_as<std::int32_t>(output, parts, elements, reduction.fold);
    case at::kLong:
      return reduce_as<std::int64_t>(output, parts, elements, reduction.fold);
    default:
      throw Bug(std::string("cannot sum tensors of dtype ") + c10::toString(reduction.dtype));
  }
}

}  // namespace strata
