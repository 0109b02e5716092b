#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::step {

// Returns MicroBatch::random_key.
at::Tensor random_key(at::Device device, std::uint64_t seed, std::int64_t step, int layer);

// libtorch's default generator of a device, for one layer and micro-batch of one step: seeded, so that a recomputed
// forward draws equal numbers, independently of rank and stage. The destructor restores the program's own state. Does
// nothing on meta.
class LayerGenerator {
 public:
  LayerGenerator(at::Device device, std::uint64_t seed, std::int64_t step, std::int64_t sample, int layer);
  ~LayerGenerator();
  LayerGenerator(const LayerGenerator&) = delete;
  LayerGenerator& operator=(const LayerGenerator&) = delete;

 private:
  at::Generator generator_;  // undefined on meta
  at::Tensor state_;         // the program's
};

}  // namespace strata::step
