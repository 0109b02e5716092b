#include "step/random_state.hpp"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <strata/split_mix.hpp>

#include <mutex>

namespace strata::step {

namespace {
std::uint64_t mixed(std::uint64_t seed, std::initializer_list<std::int64_t> parts) {
  std::uint64_t value = split_mix(seed);
  for (const std::int64_t part : parts) value = split_mix(value ^ static_cast<std::uint64_t>(part));
  return value;
}
}  // namespace

at::Tensor random_key(at::Device device, std::uint64_t seed, std::int64_t step, int layer) {
  const auto key = static_cast<std::int64_t>(mixed(seed, {step, static_cast<std::int64_t>(layer)}));
  return at::full({}, key, at::TensorOptions().dtype(at::kLong).device(device));
}

LayerGenerator::LayerGenerator(at::Device device, std::uint64_t seed, std::int64_t step, std::int64_t sample,
                               int layer) {
  if (device.is_meta()) return;
  generator_ = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  state_ = generator_.get_state();
  generator_.set_current_seed(mixed(seed, {step, sample, static_cast<std::int64_t>(layer)}));
}

LayerGenerator::~LayerGenerator() {
  if (!generator_.defined()) return;
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  generator_.set_state(state_);
}

}  // namespace strata::step
