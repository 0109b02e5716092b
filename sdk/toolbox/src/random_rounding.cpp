#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <strata/split_mix.hpp>
#include <strata/toolbox/random_rounding.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <bit>

namespace strata {
namespace {

constexpr std::uint32_t first_factor = 0x85EBCA6BU, second_factor = 0xC2B2AE35U;  // of MurmurHash3's last step
constexpr std::int64_t low_bits = 0xFFFFFFFF;

// Elements whose index has the same upper 32 bits; `first` is the lower ones of the first.
STRATA_VECTOR_CLONES void round_some(float* values, std::uint32_t first, std::int64_t count, std::uint32_t seed,
                                     std::uint32_t key) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t random = first + static_cast<std::uint32_t>(i) + seed;
    random = (random ^ (random >> 16)) * first_factor ^ key;
    random = (random ^ (random >> 13)) * second_factor;
    random ^= random >> 16;
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t rounded = (bits + (random & 0xFFFFU)) & 0xFFFF0000U;
    values[i] = std::bit_cast<float>((bits & 0x7F800000U) == 0x7F800000U ? bits : rounded);
  }
}

}  // namespace

RandomRounding::RandomRounding(const PieceInfo& piece, const StepScalars& scalars)
    : begin_(piece.begin), places_(piece.places) {
  std::uint64_t name = 0xCBF29CE484222325U;  // FNV-1a
  for (const char letter : piece.parameter) name = (name ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  seed_ = mix_bits(name ^ mix_bits(static_cast<std::uint64_t>(scalars.updates) ^ mix_bits(scalars.seed)));
}

std::uint32_t RandomRounding::key(std::int64_t element) const {
  return static_cast<std::uint32_t>(mix_bits(seed_ + static_cast<std::uint64_t>(element >> 32)) >> 32);
}

void RandomRounding::round(float* values, std::int64_t begin, std::int64_t count) const {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t here = begin_ + begin + done, element = places_.of(here);
    const std::int64_t some = std::min({count - done, places_.neighbours(here), low_bits + 1 - (element & low_bits)});
    round_some(values + done, static_cast<std::uint32_t>(element), some, static_cast<std::uint32_t>(seed_),
               key(element));
    done += some;
  }
}

at::Tensor RandomRounding::round(const at::Tensor& values, std::int64_t begin) const {
  constexpr std::int64_t most = std::int64_t{1} << 22;  // at a time, in numbers of 64 bits
  const at::Tensor from = values.reshape({-1}), rounded = at::empty_like(from);
  for (std::int64_t done = 0; done < from.numel();) {
    const std::int64_t here = begin_ + begin + done;
    const auto upper = [&](std::int64_t element) { return places_.of(element) >> 32; };
    std::int64_t some = std::min(from.numel() - done, most);
    while (upper(here) != upper(here + some - 1)) some = (some + 1) / 2;
    at::Tensor element = at::arange(here, here + some, from.options().dtype(at::kLong));
    if (places_.length > 0)
      element = element.div(places_.length, "floor")
                    .mul(places_.distance)
                    .add(places_.first)
                    .add(element.remainder(places_.length));
    at::Tensor random = element.add(static_cast<std::int64_t>(static_cast<std::uint32_t>(seed_))).bitwise_and(low_bits);
    random = random.bitwise_xor(random.bitwise_right_shift(16)).mul(first_factor).bitwise_and(low_bits);
    random = random.bitwise_xor(key(places_.of(here)));
    random = random.bitwise_xor(random.bitwise_right_shift(13)).mul(second_factor).bitwise_and(low_bits);
    random = random.bitwise_xor(random.bitwise_right_shift(16)).bitwise_and(0xFFFF);
    const at::Tensor part = from.narrow(0, done, some);
    const at::Tensor bits = part.contiguous().view(at::kInt).to(at::kLong).add(random).bitwise_and(~0xFFFFL);
    rounded.narrow(0, done, some).copy_(at::where(part.isfinite(), bits.to(at::kInt).view(at::kFloat), part));
    done += some;
  }
  return rounded.view(values.sizes());
}

}  // namespace strata
