// bf16: layers compute with bf16 parameters and activations, gradients are accumulated and reduced in fp32, and the
// optimizer updates fp32 master weights. A precision defines dtypes (the formats of each parameter), loss_scale, and
// judge (apply, skip or stop after a step); overriding linear() changes how a matmul runs.
// <strata/precision_policy.hpp> is the contract.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/precision_policy.hpp>
#include <strata/state_stream.hpp>

#include <string>

namespace {

using namespace strata;

#define PRECISION_OPTIONS(OPTION)                              \
  OPTION(integer, max_consecutive_skips, 10, "min=0", "steps", \
         "Maximum consecutive steps with non-finite gradients, which are skipped; the run stops after more.")
STRATA_OPTIONS(Options, PRECISION_OPTIONS)

class Bfloat16 final : public PrecisionPolicy {
 public:
  Bfloat16(PluginContext& /*context*/, const Options& options) : limit_(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override {
    return {.parameter = at::kBFloat16, .gradient = at::kFloat, .reduction = at::kFloat, .master = at::kFloat};
  }
  at::ScalarType activation() const override { return at::kBFloat16; }
  double loss_scale() const override { return 1.0; }  // bf16 has the range of fp32, so no scaling is needed

  // All ranks get the same health, so they decide alike. Only gradients that are not finite may be skipped.
  Verdict judge(const GradientHealth& health) override {
    skipped_ = health.finite ? 0 : skipped_ + 1;
    last_step_ = health.step;
    if (skipped_ > limit_) return Verdict::Stop;
    return health.finite ? Verdict::Apply : Verdict::Skip;
  }
  std::string stop_reason() const override {
    return "gradients were not finite in " + std::to_string(skipped_) + " consecutive steps up to step " +
           std::to_string(last_step_) + ", and max_consecutive_skips allows " + std::to_string(limit_);
  }

  // The state of judge(), so that a resumed run decides like an uninterrupted one.
  void save(StateWriter& writer) const override {
    writer.integer("skipped", skipped_);
    writer.integer("last_step", last_step_);
  }
  void load(StateReader& reader, int version) override {
    if (version > state_version())
      throw UserError(
          "the checkpoint's state of this precision has version {}, newer than this plugin's {}: use a newer plugin",
          version, state_version());
    skipped_ = reader.integer("skipped");
    last_step_ = reader.integer("last_step");
  }

 private:
  std::int64_t limit_;
  std::int64_t skipped_ = 0;  // consecutive
  std::int64_t last_step_ = 0;
};

}  // namespace

STRATA_PLUGIN(Bfloat16, Options, PRECISION_OPTIONS)
