// learning_rate.base at every update.
#include <strata/learning_rate.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class Constant final : public LearningRate {
 public:
  Constant(PluginContext& /*context*/, const NoOptions& /*options*/) {}
  double rate(std::int64_t /*update*/, const TrainingRun& run) const override { return run.base(); }
};

}  // namespace

STRATA_PLUGIN(Constant, NoOptions)
