#include "run/largest_micro_batch.hpp"

#include <strata/device.hpp>

#include <algorithm>
#include <memory>

#include "plugin_host/engine_plugins.hpp"
#include "run/dry_run.hpp"
#include "text/size.hpp"

namespace strata::runtime {

namespace {

struct Point {
  std::int64_t samples;
  std::int64_t bytes;
};

// Where a line through both meets the budget: activations are nearly all that grows, and they grow with the samples.
std::int64_t where_line_meets(const Point& a, const Point& b, std::int64_t budget, std::int64_t most) {
  const double slope = static_cast<double>(b.bytes - a.bytes) / static_cast<double>(b.samples - a.samples);
  if (slope <= 0.0) return most;
  const double samples = static_cast<double>(a.samples) + static_cast<double>(budget - a.bytes) / slope;
  return static_cast<std::int64_t>(std::min(samples, static_cast<double>(most)));
}

}  // namespace

MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t given, plugin_host::PluginRegistry& registry,
                           int local_ranks) {
  if (given > 0) return {given, "memory_budget"};
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Device, config.device.plugin), config.device.options);
  const std::unique_ptr<Device> device = registry.create<Device>(config.device.plugin, *context);
  const bool host = device->select(0).is_cpu();
  const std::int64_t available = device->memory().available;
  const std::int64_t devices = host ? 1 : std::max(device->count(), 1);
  const std::int64_t sharing = (std::max(local_ranks, 1) + devices - 1) / devices;
  return {available / 5 * 4 / sharing, "0.8 of the " + config::format_bytes(available) + " that " +
                                           (host ? "the host" : "the device") + " has left" +
                                           (sharing > 1 ? ", shared by " + std::to_string(sharing) + " ranks" : "")};
}

MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t)>& needed, std::int64_t budget,
                                  std::int64_t most) {
  Point fits{1, needed(1)};
  if (fits.bytes > budget) return {0, fits.bytes, fits.bytes};
  if (most <= 1) return {1, fits.bytes, 0};
  Point more{2, needed(2)};
  Point below = fits;  // the second point of the line
  while (more.bytes <= budget && more.samples < most) {
    below = fits;
    fits = more;
    const std::int64_t guess = where_line_meets(below, fits, budget, most) + 1;
    more.samples = std::clamp(guess, fits.samples + 1, most);
    more.bytes = needed(more.samples);
  }
  if (more.bytes <= budget) return {more.samples, more.bytes, 0};
  // fits.samples fit and more.samples do not. Halving bounds the number of dry runs where bytes are far from a line.
  for (bool by_line = true; more.samples - fits.samples > 1; by_line = !by_line) {
    const std::int64_t guess = by_line ? where_line_meets(fits, more, budget, most) : (fits.samples + more.samples) / 2;
    Point middle{std::clamp(guess, fits.samples + 1, more.samples - 1), 0};
    middle.bytes = needed(middle.samples);
    (middle.bytes <= budget ? fits : more) = middle;
  }
  return {fits.samples, fits.bytes, more.bytes};
}

config::RunConfig with_micro_batch(config::RunConfig config, std::int64_t samples) {
  config.train.micro_batch = samples;
  config.train.global_batch = samples * config.train.accumulation * config.parallel.data;
  return config;
}

std::int64_t bytes_needed(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  // The first rank of each pipeline stage; what is left over in a division makes the others' parts smaller.
  const std::int64_t ranks_of_stage = config.world_size / config.parallel.pipeline;
  std::int64_t bytes = 0;
  for (std::int64_t rank = 0; rank < config.world_size; rank += ranks_of_stage)
    bytes = std::max(bytes, dry_run(config, registry, static_cast<int>(rank)).needed);
  return bytes;
}

MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugin_host::PluginRegistry& registry,
                                  std::int64_t budget) {
  return largest_micro_batch(
      [&](std::int64_t samples) { return bytes_needed(with_micro_batch(config, samples), registry); }, budget);
}

}  // namespace strata::runtime
