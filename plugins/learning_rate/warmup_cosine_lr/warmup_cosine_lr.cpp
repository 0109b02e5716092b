// DeepSpeed's WarmupCosineLR. The rate is base r, with W = max(2, warmup_num_steps):
//   update < W   r = warmup_min_ratio + (1 - warmup_min_ratio) g
//                g = log(update + 1) / log(W) (log) or update / W (linear)
//   update >= W  r = cos_min_ratio + (1 - cos_min_ratio) (1 + cos(pi p)) / 2
//                p = min(1, (update - W + 1) / max(1, total_num_steps - W))
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define WARMUP_OPTIONS(OPTION)                                                                                   \
  OPTION(number, warmup_min_ratio, 0.0, "min=0,max=1", "", "Initial rate, as a fraction of learning_rate.base.") \
  OPTION(integer, warmup_num_steps, 1000, "min=1,max=1e12", "steps",                                             \
         "Steps of the warm-up to learning_rate.base; 1 counts as 2.")                                           \
  OPTION(text, warmup_type, "log", "one_of=log|linear", "", "Shape of the warm-up.")                             \
  OPTION(number, cos_min_ratio, 1e-4, "min=0,max=1", "", "Final rate, as a fraction of learning_rate.base.")     \
  OPTION(integer, total_num_steps, 0, "min=0,max=1e12", "steps",                                                 \
         "Step at which the final rate is reached; 0: the end of the run.")
STRATA_OPTIONS(WarmupOptions, WARMUP_OPTIONS)

class WarmupCosineLr final : public LearningRate {
 public:
  WarmupCosineLr(PluginContext& /*context*/, const WarmupOptions& options)
      : options_(options), length_(toolbox::warmup_length(options.warmup_num_steps)) {}
  double rate(std::int64_t update, const TrainingRun& run) const override {
    return run.base() * ratio(update, total(run));
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override { return {length_, total(run)}; }

 private:
  std::int64_t total(const TrainingRun& run) const {
    return options_.total_num_steps == 0 ? run.updates : options_.total_num_steps;
  }
  double ratio(std::int64_t update, std::int64_t total) const {
    if (update < length_) {
      const double rise = toolbox::warmup_progress(options_.warmup_type, update, length_);
      return options_.warmup_min_ratio + (1 - options_.warmup_min_ratio) * rise;
    }
    const std::int64_t room = std::max<std::int64_t>(1, total - length_);
    const double progress = std::min(1.0, toolbox::quotient(update - length_ + 1, room));
    return options_.cos_min_ratio + (1 - options_.cos_min_ratio) * toolbox::half_cosine(progress);
  }

  WarmupOptions options_;
  std::int64_t length_;
};

}  // namespace

STRATA_PLUGIN(WarmupCosineLr, WarmupOptions, WARMUP_OPTIONS)
