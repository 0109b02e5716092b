#include "step/random_state.hpp"

#include <ATen/Context.h>

#include <mutex>

namespace strata::runtime {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void seed_layer(at::Device device, std::uint64_t seed, std::int64_t step, std::int64_t sample, int layer) {
  if (device.is_meta()) return;
  std::uint64_t value = mix(seed);
  for (const std::int64_t part : {step, sample, static_cast<std::int64_t>(layer)})
    value = mix(value ^ static_cast<std::uint64_t>(part));
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(value);
}

}  // namespace strata::runtime
