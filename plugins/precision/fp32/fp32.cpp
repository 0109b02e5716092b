#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>
#include <strata/toolbox/state_version.hpp>

namespace {

using namespace strata;

#define FP32_OPTIONS(OPTION)                                   \
  OPTION(integer, max_consecutive_skips, 10, "min=0", "steps", \
         "Stop the run after more than this many consecutive steps with gradients that are not finite.")
STRATA_OPTIONS(Fp32Options, FP32_OPTIONS)

class Fp32 final : public PrecisionPolicy {
 public:
  Fp32(PluginContext& /*context*/, const Fp32Options& options) : skips_(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  double loss_scale() const override { return 1.0; }
  Verdict judge(const GradientHealth& health) override { return skips_.judge(health); }
  std::string stop_reason() const override { return skips_.stop_reason(); }
  void save(StateWriter& writer) const override { skips_.save(writer); }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    skips_.load(reader);
  }

 private:
  SkipPolicy skips_;
};

}  // namespace

STRATA_PLUGIN(Fp32, Fp32Options, FP32_OPTIONS)
