#include <strata/plugin_context.hpp>
#include <strata/toolbox/bf16_policy.hpp>

namespace {

using namespace strata;

STRATA_OPTIONS(Bf16Options, STRATA_BF16_OPTIONS)

class Bf16 final : public Bf16Policy {
 public:
  Bf16(PluginContext& /*context*/, const Bf16Options& options) : Bf16Policy(options) {}
};

}  // namespace

STRATA_PLUGIN(Bf16, Bf16Options, STRATA_BF16_OPTIONS)
