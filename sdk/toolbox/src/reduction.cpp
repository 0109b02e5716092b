#include <strata/toolbox/reduction.hpp>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <strata/error.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>

#include "half_precision.hpp"

namespace strata {

namespace {

// One block of the accumulator: small enough for the first-level cache, so each part is read once and the output
// written once.
constexpr std::int64_t block_elements = 1024;

// The dtype in which elements are added.
template <typename Element>
using Wide =
    std::conditional_t<std::is_same_v<Element, c10::Half> || std::is_same_v<Element, c10::BFloat16>, float, Element>;

template <Fold fold, typename Number>
Number folded(Number a, Number b) {
  if constexpr (fold == Fold::Sum) return a + b;
  return a > b || a != a ? a : b;  // a NaN is kept, whichever side it is on
}

// At least two parts.
template <Fold fold, typename Element>
[[gnu::always_inline]] inline void reduce_blocks(Element* output, const std::byte* const* parts, std::size_t count,
                                                 std::int64_t elements) {
  constexpr bool is_narrow = !std::is_same_v<Wide<Element>, Element>;
  std::array<Wide<Element>, block_elements> sum, room;
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t some = std::min(block_elements, elements - begin);
    const auto wide_part = [&](std::size_t index, Wide<Element>* widened) -> const Wide<Element>* {
      const Element* const part = reinterpret_cast<const Element*>(parts[index]) + begin;
      if constexpr (is_narrow) {
        widen(part, widened, some);
        return widened;
      } else {
        return part;
      }
    };
    const Wide<Element>* total = wide_part(0, sum.data());
    for (std::size_t index = 1; index < count; ++index) {
      const Wide<Element>* const next = wide_part(index, room.data());
      Wide<Element>* result = sum.data();
      if constexpr (!is_narrow)
        if (index + 1 == count) result = output + begin;
#pragma GCC ivdep  // `result` may be the total or a part, but then it is the very same elements
      for (std::int64_t i = 0; i < some; ++i) result[i] = folded<fold>(total[i], next[i]);
      total = result;
    }
    if constexpr (is_narrow) narrow(total, output + begin, some);
  }
}

template <typename Element>
STRATA_VECTOR_CLONES void reduce_some(Element* output, const std::byte* const* parts, std::size_t count,
                                      std::int64_t elements, Fold fold) {
  if (fold == Fold::Sum) return reduce_blocks<Fold::Sum>(output, parts, count, elements);
  reduce_blocks<Fold::Max>(output, parts, count, elements);
}

template <typename Element>
void reduce_as(std::byte* output, const std::vector<const std::byte*>& parts, std::int64_t elements, Fold fold) {
  auto* const result = reinterpret_cast<Element*>(output);
  if (parts.size() > 1) return reduce_some(result, parts.data(), parts.size(), elements, fold);
  if (output != parts[0]) std::copy_n(reinterpret_cast<const Element*>(parts[0]), elements, result);
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
      throw Bug("cannot sum tensors of dtype {}", c10::toString(reduction.dtype));
  }
}

}  // namespace strata
