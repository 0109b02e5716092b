// base (1 - (1 - final_ratio) p), p = update / updates: base final_ratio is reached one past the last update.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define LINEAR_OPTIONS(OPTION) \
  OPTION(number, final_ratio, 0.0, "min=0,max=1", "", "Final learning rate, as a fraction of learning_rate.base.")
STRATA_OPTIONS(LinearOptions, LINEAR_OPTIONS)

class Linear final : public LearningRate {
 public:
  Linear(PluginContext& /*context*/, const LinearOptions& options) : options_(options) {}
  double rate(std::int64_t update, const TrainingRun& run) const override {
    if (run.updates == 0) return run.base();
    const double progress = std::min(toolbox::quotient(update, run.updates), 1.0);
    return run.base() * (1 - (1 - options_.final_ratio) * progress);
  }

 private:
  LinearOptions options_;
};

}  // namespace

STRATA_PLUGIN(Linear, LinearOptions, LINEAR_OPTIONS)
