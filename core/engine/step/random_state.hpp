#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::runtime {

// Mixes bits by SplitMix64's finalizer (Steele, Lea, Flood 2014): every input bit affects every output bit.
std::uint64_t mix(std::uint64_t x);

// Returns MicroBatch::random_key.
at::Tensor random_key(at::Device device, std::uint64_t seed, std::int64_t step, int layer);

// Sets the device's generator for one layer and micro-batch of one step, so that a recomputed forward draws the same
// numbers, independently of rank and stage. Does nothing on meta.
void seed_layer(at::Device device, std::uint64_t seed, std::int64_t step, std::int64_t sample, int layer);

}  // namespace strata::runtime
