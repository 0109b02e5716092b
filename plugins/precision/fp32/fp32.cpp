#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>

namespace {

using namespace strata;

#define FP32_OPTIONS(OPTION) STRATA_SKIP_OPTION(OPTION)
STRATA_OPTIONS(Fp32Options, FP32_OPTIONS)

class Fp32 final : public UnscaledPolicy {
 public:
  Fp32(PluginContext& /*context*/, const Fp32Options& options) : UnscaledPolicy(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
};

}  // namespace

STRATA_PLUGIN(Fp32, Fp32Options, FP32_OPTIONS)
