// DeepSpeed's WarmupDecayLR, as DeepSpeed's optimizer uses it. The rate is warmup_min_lr + (warmup_max_lr -
// warmup_min_lr) g, with W = max(2, warmup_num_steps) and i = max(0, update - 1), see toolbox::warmup_value:
//   i < W   g = log(i + 1) / log(W) (log) or i / W (linear)
//   i >= W  g = max(0, (total_num_steps - i) / max(1, total_num_steps - W))
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define WARMUP_OPTIONS(OPTION)                                                                               \
  OPTION(number, warmup_min_lr, 0.0, "min=0", "", "Initial learning rate.")                                  \
  OPTION(number, warmup_max_lr, -1.0, "min=-1", "",                                                          \
         "Learning rate at the end of the warm-up; -1: learning_rate.base.")                                 \
  OPTION(integer, warmup_num_steps, 1000, "min=1,max=1e12", "steps", "Steps of the warm-up; 1 counts as 2.") \
  OPTION(text, warmup_type, "log", "one_of=log|linear", "", "Shape of the warm-up.")                         \
  OPTION(integer, total_num_steps, 0, "min=0,max=1e12", "steps",                                             \
         "Length of the schedule; the rate returns to warmup_min_lr directly after it. 0: the length of the run.")
STRATA_OPTIONS(WarmupOptions, WARMUP_OPTIONS)

class WarmupDecayLr final : public LearningRate {
 public:
  WarmupDecayLr(PluginContext& /*context*/, const WarmupOptions& options)
      : options_(options), length_(toolbox::warmup_length(options.warmup_num_steps)) {
    toolbox::check_minus_one_or_more(options.warmup_max_lr, "learning_rate.warmup_decay_lr.warmup_max_lr");
  }
  double rate(std::int64_t update, const TrainingRun& run) const override {
    const double low = options_.warmup_min_lr;
    const double high = options_.warmup_max_lr == -1 ? run.base() : options_.warmup_max_lr;
    return low + (high - low) * part(toolbox::warmup_value(update), total(run));
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override {
    return {1, length_ + 1, total(run) + 1};
  }

 private:
  std::int64_t total(const TrainingRun& run) const {
    return options_.total_num_steps == 0 ? run.updates : options_.total_num_steps;
  }
  double part(std::int64_t i, std::int64_t total) const {
    if (i < length_) return toolbox::warmup_progress(options_.warmup_type, i, length_);
    return std::max(0.0, toolbox::quotient(total - i, std::max<std::int64_t>(1, total - length_)));
  }

  WarmupOptions options_;
  std::int64_t length_;
};

}  // namespace

STRATA_PLUGIN(WarmupDecayLr, WarmupOptions, WARMUP_OPTIONS)
