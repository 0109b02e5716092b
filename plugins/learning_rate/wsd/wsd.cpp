// WSD (warm-up, stable, decay): base, then base (final_ratio + (1 - final_ratio) d(q)) in the last decay_steps updates.
// q rises from 0 at the start of the decay to 1 one past the last update. d(q) by decay_style: 1 - q (linear),
// (1 + cos(pi q)) / 2 (cosine), 1 - sqrt(q) (minus_sqrt), 2 0.5^q - 1 (exponential).
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/learning_rate.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace strata;

#define WSD_OPTIONS(OPTION)                                                                                            \
  OPTION(number, final_ratio, 0.0, "min=0,max=1", "", "Final learning rate, as a fraction of learning_rate.base.")     \
  OPTION(integer, decay_steps, 0, "min=0,max=1e12", "steps", "Steps of the final decay; 0: one tenth of train.steps.") \
  OPTION(text, decay_style, "linear", "one_of=linear|cosine|minus_sqrt|exponential", "", "Shape of the decay.")
STRATA_OPTIONS(WsdOptions, WSD_OPTIONS)

class Wsd final : public LearningRate {
 public:
  Wsd(PluginContext& /*context*/, const WsdOptions& options) : options_(options) {}

  double rate(std::int64_t update, const TrainingRun& run) const override {
    const std::int64_t steps = decay_steps(run);
    if (run.updates == 0) return run.base();
    const std::int64_t stable = run.updates - steps;
    const double q = update <= stable ? 0 : std::min(toolbox::quotient(update - stable, steps), 1.0);
    return run.base() * (options_.final_ratio + (1 - options_.final_ratio) * decay(q));
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override {
    return {run.updates - decay_steps(run)};
  }

 private:
  std::int64_t decay_steps(const TrainingRun& run) const {
    const std::int64_t room = std::max<std::int64_t>(run.updates, 1);
    if (options_.decay_steps == 0) return std::clamp<std::int64_t>((run.updates + run.warmup) / 10, 1, room);
    if (options_.decay_steps > room)
      throw UserError(
          "learning_rate.wsd.decay_steps is {}, but train.steps minus learning_rate.warmup ({}) leaves {}; decay over "
          "fewer steps, or train longer",
          options_.decay_steps, run.warmup, room);
    return options_.decay_steps;
  }
  double decay(double q) const {
    if (options_.decay_style == "cosine") return toolbox::half_cosine(q);
    if (options_.decay_style == "minus_sqrt") return 1 - std::sqrt(q);
    if (options_.decay_style == "exponential") return 2 * std::pow(0.5, q) - 1;
    return 1 - q;
  }

  WsdOptions options_;
};

}  // namespace

STRATA_PLUGIN(Wsd, WsdOptions, WSD_OPTIONS)
