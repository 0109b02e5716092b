// DeepSpeed's WarmupLR: warmup_min_lr + (warmup_max_lr - warmup_min_lr) g; with W = warmup_num_steps, 2 at least, g is
// log(update + 1) / log(W) (log) or update / W (linear) below W, then 1.
// [Note: DeepSpeed's update] DeepSpeed calls its scheduler after the optimizer's step. The rates that it prints after
// its step t of the three warm-up schedules are those of update t here, and its optimizer uses each one update later,
// the first rate twice.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

namespace {

using namespace strata;

#define WARMUP_OPTIONS(OPTION)                                                                             \
  OPTION(number, warmup_min_lr, 0.0, "min=0", "", "The first rate.")                                       \
  OPTION(number, warmup_max_lr, -1.0, "min=-1", "", "The rate after the warm-up; -1: learning_rate.base.") \
  OPTION(integer, warmup_num_steps, 1000, "min=1,max=1e12", "steps", "Steps between the two, 2 at least.") \
  OPTION(text, warmup_type, "log", "one_of=log|linear", "", "How the rate rises.")
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
    const double part = update < length_ ? toolbox::warmup_progress(options_.warmup_type, update, length_) : 1;
    return low + (high - low) * part;
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& /*run*/) const override { return {length_}; }

 private:
  WarmupOptions options_;
  std::int64_t length_;
};

}  // namespace

STRATA_PLUGIN(WarmupLr, WarmupOptions, WARMUP_OPTIONS)
