// base (final_ratio + (1 - final_ratio) (1 + cos(pi p)) / 2), p = update / updates: base final_ratio is reached one
// past the last update.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace {

using namespace strata;

#define COSINE_OPTIONS(OPTION) \
  OPTION(number, final_ratio, 0.0, "min=0,max=1", "", "Final learning rate, as a fraction of learning_rate.base.")
STRATA_OPTIONS(CosineOptions, COSINE_OPTIONS)

class Cosine final : public LearningRate {
 public:
  Cosine(PluginContext& /*context*/, const CosineOptions& options) : options_(options) {}
  double rate(std::int64_t update, const TrainingRun& run) const override {
    if (run.updates == 0) return run.base();
    const double progress = std::min(static_cast<double>(update) / static_cast<double>(run.updates), 1.0);
    const double falling = 1 - options_.final_ratio;
    return run.base() * (options_.final_ratio + falling * (1 + std::cos(std::numbers::pi * progress)) / 2);
  }

 private:
  CosineOptions options_;
};

}  // namespace

STRATA_PLUGIN(Cosine, CosineOptions, COSINE_OPTIONS)
