// DeepSpeed's WarmupCosineLR, as DeepSpeed's optimizer uses it. The rate is base r, with W = max(2, warmup_num_steps)
// and i = max(0, update - 1), see toolbox::warmup_value. The first update has r = 0, then:
//   i < W   r = warmup_min_ratio + (1 - warmup_min_ratio) g
//           g = log(i + 1) / log(W) (log) or i / W (linear)
//   i >= W  r = cos_min_ratio + (1 - cos_min_ratio) (1 + cos(pi p)) / 2
//           p = min(1, (i - W + 1) / max(1, total_num_steps - W))
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define WARMUP_OPTIONS(OPTION)                                                                                         \
  OPTION(number, warmup_min_ratio, 0.0, "min=0,max=1", "",                                                             \
         "Initial learning rate, as a fraction of learning_rate.base. It applies to the second update; the first has " \
         "rate 0.")                                                                                                    \
  OPTION(integer, warmup_num_steps, 1000, "min=1,max=1e12", "steps",                                                   \
         "Steps of the warm-up to learning_rate.base; 1 counts as 2.")                                                 \
  OPTION(text, warmup_type, "log", "one_of=log|linear", "", "Shape of the warm-up.")                                   \
  OPTION(number, cos_min_ratio, 1e-4, "min=0,max=1", "", "Final learning rate, as a fraction of learning_rate.base.")  \
  OPTION(integer, total_num_steps, 0, "min=0,max=1e12", "steps",                                                       \
         "Length of the schedule, whose last step has the final rate; 0: the length of the run.")
STRATA_OPTIONS(WarmupOptions, WARMUP_OPTIONS)

class WarmupCosineLr final : public LearningRate {
 public:
  WarmupCosineLr(PluginContext& /*context*/, const WarmupOptions& options)
      : options_(options), length_(toolbox::warmup_length(options.warmup_num_steps)) {}
  double rate(std::int64_t update, const TrainingRun& run) const override {
    return update == 0 ? 0.0 : run.base() * ratio(toolbox::warmup_value(update), total(run));
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override { return {1, length_ + 1, total(run)}; }

 private:
  std::int64_t total(const TrainingRun& run) const {
    return options_.total_num_steps == 0 ? run.updates : options_.total_num_steps;
  }
  double ratio(std::int64_t i, std::int64_t total) const {
    if (i < length_) {
      const double rise = toolbox::warmup_progress(options_.warmup_type, i, length_);
      return options_.warmup_min_ratio + (1 - options_.warmup_min_ratio) * rise;
    }
    const std::int64_t room = std::max<std::int64_t>(1, total - length_);
    const double progress = std::min(1.0, toolbox::quotient(i - length_ + 1, room));
    return options_.cos_min_ratio + (1 - options_.cos_min_ratio) * toolbox::half_cosine(progress);
  }

  WarmupOptions options_;
  std::int64_t length_;
};

}  // namespace

STRATA_PLUGIN(WarmupCosineLr, WarmupOptions, WARMUP_OPTIONS)
