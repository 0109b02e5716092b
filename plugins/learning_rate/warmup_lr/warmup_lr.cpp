// DeepSpeed's WarmupLR, as DeepSpeed's optimizer uses it. The rate is warmup_min_lr + (warmup_max_lr - warmup_min_lr)
// g, with W = max(2, warmup_num_steps) and i = max(0, update - 1), see toolbox::warmup_value:
//   i < W   g = log(i + 1) / log(W) (log) or i / W (linear)
//   i >= W  g = 1
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

namespace {

using namespace strata;

#define WARMUP_OPTIONS(OPTION)                                                                               \
  OPTION(number, warmup_min_lr, 0.0, "min=0", "", "Initial learning rate.")                                  \
  OPTION(number, warmup_max_lr, -1.0, "min=-1", "",                                                          \
         "Learning rate at the end of the warm-up; -1: learning_rate.base.")                                 \
  OPTION(integer, warmup_num_steps, 1000, "min=1,max=1e12", "steps", "Steps of the warm-up; 1 counts as 2.") \
  OPTION(text, warmup_type, "log", "one_of=log|linear", "", "Shape of the warm-up.")
STRATA_OPTIONS(WarmupOptions, WARMUP_OPTIONS)

class WarmupLr final : public LearningRate {
 public:
  WarmupLr(PluginContext& /*context*/, const WarmupOptions& options)
      : options_(options), length_(toolbox::warmup_length(options.warmup_num_steps)) {
    toolbox::check_minus_one_or_more(options.warmup_max_lr, "learning_rate.warmup_lr.warmup_max_lr");
  }
  double rate(std::int64_t update, const TrainingRun& run) const override {
    const double low = options_.warmup_min_lr;
    const double high = options_.warmup_max_lr == -1 ? run.base() : options_.warmup_max_lr;
    const std::int64_t i = toolbox::warmup_value(update);
    const double part = i < length_ ? toolbox::warmup_progress(options_.warmup_type, i, length_) : 1;
    return low + (high - low) * part;
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& /*run*/) const override { return {1, length_ + 1}; }

 private:
  WarmupOptions options_;
  std::int64_t length_;
};

}  // namespace

STRATA_PLUGIN(WarmupLr, WarmupOptions, WARMUP_OPTIONS)
