#include <strata/toolbox/reduction.hpp>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <strata/error.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <array>
#include <string>

#include "half_precision.hpp"

namespace strata {

namespace {

// One block of the accumulator: small enough for the first-level cache, so each part is read once and the output
// written once.
constexpr std::int64_t block_elements = 1024;

using strata::round_to;
using strata::widened;
template <typename Number>
Number widened(Number number) {
  return number;
}
template <typename Number>
void round_to(Number& to, Number number) {
  to = number;
}

template <Fold fold, typename Number>
Number folded(Number a, Number b) {
  if constexpr (fold == Fold::Sum) return a + b;
  return a > b || a != a ? a : b;  // a NaN is kept, whichever side it is on
}

// At least two parts.
template <Fold fold, typename Element>
[[gnu::always_inline]] inline void reduce_blocks(Element* output, const std::byte* const* parts, std::size_t count,
                                                 std::int64_t elements) {
  std::array<decltype(widened(Element())), block_elements> sum;
  const auto part = [&](std::size_t index) { return reinterpret_cast<const Element*>(parts[index]); };
  for (std::int64_t begin = 0; begin < elements; begin += block_elements) {
    const std::int64_t some = std::min(block_elements, elements - begin);
    auto* const total = sum.data();
    const Element* const first = part(0) + begin;
    for (std::int64_t i = 0; i < some; ++i) total[i] = widened(first[i]);
    for (std::size_t index = 1; index + 1 < count; ++index) {
      const Element* const next = part(index) + begin;
      for (std::int64_t i = 0; i < some; ++i) total[i] = folded<fold>(total[i], widened(next[i]));
    }
    const Element* const last = part(count - 1) + begin;
    Element* const result = output + begin;
#pragma GCC ivdep  // `output` may be a part, but then it is the very same elements
    for (std::int64_t i = 0; i < some; ++i) round_to(result[i], folded<fold>(total[i], widened(last[i])));
  }
}

template <typename Element>
[[gnu::always_inline]] inline void reduce_either(Element* output, const std::byte* const* parts, std::size_t count,
                                                 std::int64_t elements, Fold fold) {
  if (fold == Fold::Sum) return reduce_blocks<Fold::Sum>(output, parts, count, elements);
  reduce_blocks<Fold::Max>(output, parts, count, elements);
}

template <typename Element>
void reduce_some(Element* output, const std::byte* const* parts, std::size_t count, std::int64_t elements, Fold fold) {
  reduce_either(output, parts, count, elements, fold);
}
// To convert takes longer than to wait for memory, unless vectors are long.
STRATA_VECTOR_CLONES void reduce_some(c10::BFloat16* output, const std::byte* const* parts, std::size_t count,
                                      std::int64_t elements, Fold fold) {
  reduce_either(output, parts, count, elements, fold);
}
STRATA_VECTOR_CLONES void reduce_some(c10::Half* output, const std::byte* const* parts, std::size_t count,
                                      std::int64_t elements, Fold fold) {
  reduce_either(output, parts, count, elements, fold);
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
      throw Bug(std::string("cannot sum tensors of dtype ") + c10::toString(reduction.dtype));
  }
}

}  // namespace strata
