// Additive fingerprints of a parameter's values: the whole's digest is the sum of its parts', on any ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::state {

// Mask of digests: sums are modulo 2^40, so that ranks can add many as 64-bit numbers.
inline constexpr std::uint64_t digest_mask = (std::uint64_t{1} << 40) - 1;

// Digests of the bits of `values`: one-dimensional, contiguous, any floating dtype. Blocks the host if on a device.
class Digest {
 public:
  explicit Digest(const at::Tensor& values);
  // Returns the digest of elements [begin, begin + elements); the first is element `place` of the parameter.
  std::uint64_t of(std::int64_t begin, std::int64_t elements, std::int64_t place) const;

 private:
  at::Tensor values_;  // values on the host
};

// Returns a digest of the elements' indices [begin, end); sums are modulo a prime, because sizes are powers of two.
inline constexpr std::uint64_t places_modulus = (std::uint64_t{1} << 31) - 1;
std::uint64_t digest_of_places(std::int64_t begin, std::int64_t end);

}  // namespace strata::state
