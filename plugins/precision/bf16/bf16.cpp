#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/product.hpp>
#include <strata/toolbox/skip_policy.hpp>
#include <strata/toolbox/state_version.hpp>

namespace {

using namespace strata;

#define BF16_OPTIONS(OPTION)                                                                                       \
  OPTION(text, accumulation, "fp32", "one_of=fp32|bf16", "",                                                       \
         "Format in which gradients are accumulated over micro-batches; bf16 halves their memory and loses small " \
         "gradients.")                                                                                             \
  OPTION(text, reduction, "fp32", "one_of=fp32|bf16", "", "Format in which gradients are reduced over ranks.")     \
  OPTION(integer, max_consecutive_skips, 10, "min=0", "steps",                                                     \
         "Stop the run after more than this many consecutive steps with gradients that are not finite.")
STRATA_OPTIONS(Bf16Options, BF16_OPTIONS)

at::ScalarType dtype_of(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : at::kFloat;
}

class Bf16 final : public PrecisionPolicy {
 public:
  Bf16(PluginContext& /*context*/, const Bf16Options& options)
      : dtypes_{at::kBFloat16, dtype_of(options.accumulation), dtype_of(options.reduction), at::kFloat},
        skips_(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return dtypes_; }
  at::ScalarType activation() const override { return at::kBFloat16; }
  double loss_scale() const override { return 1.0; }
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& into) override {
    add_product(into, dy.t(), x);
  }
  Verdict judge(const GradientHealth& health) override { return skips_.judge(health); }
  std::string stop_reason() const override { return skips_.stop_reason(); }
  void save(StateWriter& writer) const override { skips_.save(writer); }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    skips_.load(reader);
  }

 private:
  DTypes dtypes_;
  SkipPolicy skips_;
};

}  // namespace

STRATA_PLUGIN(Bf16, Bf16Options, BF16_OPTIONS)
