#include "state/digest.hpp"

#include <ATen/Parallel.h>
#include <strata/error.hpp>
#include <strata/split_mix.hpp>
#include <strata/vector_clones.hpp>

#include <atomic>
#include <utility>

namespace strata::state {

namespace {

template <typename Bits>
[[gnu::always_inline]] inline std::uint64_t sum_of_all(const Bits* bits, std::int64_t elements, std::int64_t place) {
  std::uint64_t sum = 0, at = static_cast<std::uint64_t>(place) * golden_ratio;
  for (std::int64_t i = 0; i < elements; ++i, at += golden_ratio) sum += mix_bits(bits[i] + at);
  return sum;
}

STRATA_VECTOR_CLONES std::uint64_t sum_of_some(const std::uint8_t* bits, std::int64_t elements, std::int64_t place) {
  return sum_of_all(bits, elements, place);
}
STRATA_VECTOR_CLONES std::uint64_t sum_of_some(const std::uint16_t* bits, std::int64_t elements, std::int64_t place) {
  return sum_of_all(bits, elements, place);
}
STRATA_VECTOR_CLONES std::uint64_t sum_of_some(const std::uint32_t* bits, std::int64_t elements, std::int64_t place) {
  return sum_of_all(bits, elements, place);
}
STRATA_VECTOR_CLONES std::uint64_t sum_of_some(const std::uint64_t* bits, std::int64_t elements, std::int64_t place) {
  return sum_of_all(bits, elements, place);
}

template <typename Bits>
std::uint64_t sum_of(const void* memory, std::int64_t begin, std::int64_t elements, std::int64_t place) {
  constexpr std::int64_t grain = 1 << 18;  // elements below which a second thread does not pay
  const Bits* const bits = static_cast<const Bits*>(memory) + begin;
  std::atomic<std::uint64_t> all{0};
  at::parallel_for(0, elements, grain, [&](std::int64_t from, std::int64_t to) {
    all += sum_of_some(bits + from, to - from, place + from);
  });
  return all & digest_mask;
}

}  // namespace

Digest::Digest(const at::Tensor& values) : values_(values.detach().cpu()) {
  strata_check(values_.dim() == 1 && values_.is_contiguous(), "digests are of one-dimensional contiguous memory");
}

std::uint64_t Digest::of(std::int64_t begin, std::int64_t elements, std::int64_t place) const {
  const void* const memory = values_.const_data_ptr();
  switch (values_.element_size()) {
    case 1:
      return sum_of<std::uint8_t>(memory, begin, elements, place);
    case 2:
      return sum_of<std::uint16_t>(memory, begin, elements, place);
    case 4:
      return sum_of<std::uint32_t>(memory, begin, elements, place);
    default:
      return sum_of<std::uint64_t>(memory, begin, elements, place);
  }
}

// The sum of the numbers from `begin` on; the even factor is halved, so that nothing is lost.
std::uint64_t digest_of_places(std::int64_t begin, std::int64_t end) {
  const auto below = [](std::int64_t bound) {
    const auto n = static_cast<std::uint64_t>(bound), before = n == 0 ? 0 : n - 1;
    const auto [half, other] = n % 2 == 0 ? std::pair(n / 2, before) : std::pair(before / 2, n);
    return half % places_modulus * (other % places_modulus) % places_modulus;
  };
  return (below(end) + places_modulus - below(begin)) % places_modulus;
}

}  // namespace strata::state
