#include "data/sample_order.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <bit>

namespace strata::data {
namespace {

constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;
constexpr int rounds = 6;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t feistel(std::uint64_t value, std::uint64_t key, int half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t round_key = key + golden * static_cast<std::uint64_t>(i + 1);
    const std::uint64_t next = left ^ (mix(round_key ^ right) >> (64 - half_bits));
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

SampleOrder SampleOrder::sequential(std::int64_t samples) {
  return {samples, false, 0};
}

SampleOrder SampleOrder::shuffled(std::int64_t samples, std::uint64_t seed) {
  return {samples, true, seed};
}

SampleOrder::SampleOrder(std::int64_t samples, bool shuffle, std::uint64_t seed)
    : samples_(samples), shuffle_(shuffle), seed_(seed), half_bits_(4) {
  strata_check(samples >= 1, "SampleOrder: a data set has at least one sample");
  const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
  half_bits_ = std::max(4, (bits + 1) / 2);
}

std::int64_t SampleOrder::sample(std::int64_t position) const {
  strata_check(position >= 0, "SampleOrder: positions count from 0");
  const std::int64_t index = position % samples_;
  if (!shuffle_) return index;
  const auto epoch = static_cast<std::uint64_t>(position / samples_);
  const std::uint64_t key = mix(mix(seed_) + golden * epoch);
  // A permutation's cycle through `index` returns to it, so the walk ends at the latest there.
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = feistel(value, key, half_bits_);
  } while (value >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(value);
}

std::int64_t BatchPlan::first_position(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const {
  strata_check(step >= 0, "BatchPlan: steps count from 0");
  strata_check(micro_batch_index >= 0 && micro_batch_index < accumulation, "BatchPlan: no such micro-batch in a step");
  strata_check(rank >= 0 && rank < ranks, "BatchPlan: no such data-parallel rank");
  return step * global_batch() + (micro_batch_index * ranks + rank) * micro_batch;
}

}  // namespace strata::data
