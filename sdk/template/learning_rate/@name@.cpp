// A decay to zero by a power of the rest of the run: power 1 is a line. What decides a schedule is rate(): a pure
// function of the update. The linear warm-up before it is the engine's; <strata/learning_rate.hpp> is the contract.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace strata;

#define POWER_OPTIONS(OPTION) \
  OPTION(number, power, 2.0, "min=0.1,max=10", "", "Exponent of the remaining fraction of the run; 1: a linear decay.")
STRATA_OPTIONS(PowerOptions, POWER_OPTIONS)

class PowerOfTheRest final : public LearningRate {
 public:
  PowerOfTheRest(PluginContext& /*context*/, const PowerOptions& options) : power_(options.power) {}

  // `update` counts from 0 after the warm-up. It may lie past the run's last, and run.updates may be 0.
  double rate(std::int64_t update, const TrainingRun& run) const override {
    if (run.updates == 0) return run.base();
    const double done = std::min(static_cast<double>(update) / static_cast<double>(run.updates), 1.0);
    return run.base() * std::pow(1 - done, power_);
  }

 private:
  double power_;
};

}  // namespace

STRATA_PLUGIN(PowerOfTheRest, PowerOptions, POWER_OPTIONS)
