// A schedule that needs no length: the rate is base / sqrt(1 + update / timescale), so a run can be prolonged; only the
// last `cooldown` updates know the end and fall to 0 in a line (Zhai et al., Scaling Vision Transformers).
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace strata;

#define ROOT_OPTIONS(OPTION)                                                                              \
  OPTION(integer, timescale, 1000, "min=1", "updates", "Updates after which the rate is base / sqrt(2).") \
  OPTION(integer, cooldown, 0, "min=0", "updates", "Final updates over which the rate decays to 0; 0: no cooldown.")
STRATA_OPTIONS(RootOptions, ROOT_OPTIONS)

class InverseRoot final : public LearningRate {
 public:
  InverseRoot(PluginContext&, const RootOptions& options) : options_(options) {}

  double rate(std::int64_t update, const TrainingRun& run) const override {
    const double passed = static_cast<double>(update) / static_cast<double>(options_.timescale);
    return run.base() / std::sqrt(1 + passed) * left(update, run);
  }
  std::vector<std::int64_t> phase_starts(const TrainingRun& run) const override {
    return {run.updates - options_.cooldown};
  }

 private:
  double left(std::int64_t update, const TrainingRun& run) const {
    if (options_.cooldown == 0) return 1;
    const double rest = static_cast<double>(run.updates - update) / static_cast<double>(options_.cooldown);
    return std::clamp(rest, 0.0, 1.0);
  }

  RootOptions options_;
};

}  // namespace

STRATA_PLUGIN(InverseRoot, RootOptions, ROOT_OPTIONS)
