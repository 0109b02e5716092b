#include "runtime/largest_micro_batch.hpp"

#include <algorithm>

#include "runtime/dry_run.hpp"

namespace strata::runtime {

namespace {

struct Point {
  std::int64_t samples;
  std::int64_t bytes;
};

// Where a line through both meets the budget: activations are nearly all that grows, and they grow with the samples.
std::int64_t where_line_meets(const Point& a, const Point& b, std::int64_t budget) {
  const double slope = static_cast<double>(b.bytes - a.bytes) / static_cast<double>(b.samples - a.samples);
  if (slope <= 0.0) return most_samples;
  const double samples = static_cast<double>(a.samples) + static_cast<double>(budget - a.bytes) / slope;
  return static_cast<std::int64_t>(std::min(samples, static_cast<double>(most_samples)));
}

}  // namespace

MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t)>& needed, std::int64_t budget) {
  Point fits{1, needed(1)};
  if (fits.bytes > budget) return {0, fits.bytes, fits.bytes};
  Point more{2, needed(2)};
  Point below = fits;  // the second point of the line
  while (more.bytes <= budget && more.samples < most_samples) {
    below = fits;
    fits = more;
    const std::int64_t guess = where_line_meets(below, fits, budget) + 1;
    more.samples = std::clamp(guess, fits.samples + 1, most_samples);
    more.bytes = needed(more.samples);
  }
  if (more.bytes <= budget) return {more.samples, more.bytes, 0};
  // fits.samples fit and more.samples do not. Halving bounds the number of dry runs where bytes are far from a line.
  for (bool by_line = true; more.samples - fits.samples > 1; by_line = !by_line) {
    const std::int64_t guess = by_line ? where_line_meets(fits, more, budget) : (fits.samples + more.samples) / 2;
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

MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugin_host::PluginRegistry& registry,
                                  std::int64_t budget) {
  const std::vector<int> ranks = planned_ranks(config);
  return largest_micro_batch(
      [&](std::int64_t samples) {
        const config::RunConfig changed = with_micro_batch(config, samples);
        std::int64_t most = 0;
        for (const int rank : ranks) most = std::max(most, dry_run(changed, registry, rank).needed);
        return most;
      },
      budget);
}

}  // namespace strata::runtime
