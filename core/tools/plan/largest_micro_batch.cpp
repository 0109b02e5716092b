#include "tools/plan/largest_micro_batch.hpp"

#include <algorithm>

#include "plan/memory_budget.hpp"

namespace strata::cli {

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

config::RunConfig with_micro_batch(config::RunConfig config, std::int64_t samples) {
  config.train.micro_batch = samples;
  config.train.global_batch = samples * config.train.accumulation * config.parallel.size(Axis::Data);
  return config;
}

}  // namespace

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

MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                  std::int64_t budget) {
  return largest_micro_batch(
      [&](std::int64_t samples) { return plan::bytes_needed(with_micro_batch(config, samples), registry); }, budget);
}

}  // namespace strata::cli
