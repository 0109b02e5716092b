// Fingerprints of a parameter's values that add up: that of a whole is the sum of its parts', whichever rank has them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::state {

// Sums count modulo 2^40, so that ranks can add many as 64-bit numbers.
inline constexpr std::uint64_t digest_mask = (std::uint64_t{1} << 40) - 1;

// Of the bits of `values`: one-dimensional, contiguous, any floating dtype. Blocks the host where they are elsewhere.
class Digest {
 public:
  explicit Digest(const at::Tensor& values);
  // Of elements [begin, begin + elements), the first of which is element `place` of the parameter.
  std::uint64_t of(std::int64_t begin, std::int64_t elements, std::int64_t place) const;

 private:
  at::Tensor values_;  // on the host
};

// Of elements [begin, end) themselves, whatever their values; sums count modulo a prime, as sizes are powers of two.
inline constexpr std::uint64_t places_modulus = (std::uint64_t{1} << 31) - 1;
std::uint64_t digest_of_places(std::int64_t begin, std::int64_t end);

}  // namespace strata::state
