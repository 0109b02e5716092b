#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/dynamic_loss_scale.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/toolbox/skip_policy.hpp>
#include <strata/toolbox/state_version.hpp>
#include <strata/toolbox/with_products.hpp>

#include <cmath>
#include <cstdio>

namespace {

using namespace strata;

// Names and defaults of the loss scale options are those of the fp16 section of DeepSpeed's configs.
#define FP16_OPTIONS(OPTION)                                                                                           \
  OPTION(                                                                                                              \
      text, accumulation, "fp32", "one_of=fp32|fp16", "",                                                              \
      "Format in which gradients are accumulated over micro-batches. fp16 halves their memory and overflows sooner.")  \
  OPTION(text, reduction, "fp32", "one_of=fp32|fp16", "", "Format in which gradients are reduced over ranks.")         \
  OPTION(number, loss_scale, 0, "min=0", "", "Static loss scale; 0: dynamic, controlled by the options below.")        \
  OPTION(integer, initial_scale_power, 16, "min=0,max=100", "", "Initial dynamic scale, as a power of 2.")             \
  OPTION(integer, loss_scale_window, 1000, "min=1", "steps",                                                           \
         "Consecutive steps without overflow after which the dynamic scale is doubled.")                               \
  OPTION(integer, hysteresis, 2, "min=1", "steps",                                                                     \
         "Number of overflows after which the dynamic scale is halved. Every further overflow halves it again, until " \
         "the scale is next doubled.")                                                                                 \
  OPTION(boolean, consecutive_hysteresis, false, "", "", "Count only consecutive overflows for hysteresis.")           \
  OPTION(number, min_loss_scale, 1, "min=1e-30", "",                                                                   \
         "Minimum dynamic scale; an overflow at this scale stops the run.")                                            \
  OPTION(integer, max_consecutive_skips, 40, "min=0", "steps",                                                         \
         "Maximum number of consecutive steps skipped for non-finite gradients; one more stops the run.")
STRATA_OPTIONS(Fp16Options, FP16_OPTIONS)

at::ScalarType dtype_of(const std::string& name) {
  return name == "fp16" ? at::kHalf : at::kFloat;
}

std::string scale_text(double scale) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", scale);
  return text;
}

class Fp16 final : public WithProducts<PrecisionPolicy> {
 public:
  Fp16(PluginContext& context, const Fp16Options& options)
      : context_(context),
        dtypes_{at::kHalf, dtype_of(options.accumulation), dtype_of(options.reduction), at::kFloat},
        static_scale_(options.loss_scale),
        scale_({std::ldexp(1.0, static_cast<int>(options.initial_scale_power)), options.loss_scale_window,
                options.hysteresis, options.consecutive_hysteresis, options.min_loss_scale}),
        skips_(options.max_consecutive_skips) {
    if (is_static()) check_dynamic(context.plugin_name(), options);
    if (!is_static() && scale_.value() < options.min_loss_scale)
      throw UserError(
          "initial_scale_power {} makes the initial loss scale {}, below min_loss_scale {}; raise the first or lower "
          "the second",
          options.initial_scale_power, scale_text(scale_.value()), scale_text(options.min_loss_scale));
  }

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return dtypes_; }
  at::ScalarType activation() const override { return at::kHalf; }
  double loss_scale() const override { return is_static() ? static_scale_ : scale_.value(); }
  bool searches_scale() const override { return !is_static(); }

  Verdict judge(const GradientHealth& health) override {
    const double used = loss_scale();
    context_.set_metric("loss_scale", "", used);
    if (!is_static() && !scale_.update(health.finite)) {
      at_minimum_ = health.step;
      return Verdict::Stop;
    }
    if (loss_scale() != used && context_.rank() == 0)
      context_.log(LogLevel::Info, "step " + std::to_string(health.step) + ": the loss scale changes from " +
                                       scale_text(used) + " to " + scale_text(loss_scale()));
    return skips_.judge(health);
  }

  std::string stop_reason() const override {
    if (at_minimum_ < 0) return skips_.stop_reason();
    return format(
        "the gradients of step {} were not finite at the minimum loss scale, min_loss_scale {}: the run has diverged, "
        "or an activation exceeds fp16's maximum of 65504; lower the learning rate, start from an earlier checkpoint, "
        "or train in bf16",
        at_minimum_, scale_text(loss_scale()));
  }

  void save(StateWriter& writer) const override {
    scale_.save(writer);
    skips_.save(writer);
  }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    scale_.load(reader);
    skips_.load(reader);
  }

 private:
  // Options of the dynamic scale given with a static one.
  static void check_dynamic(const std::string& name, const Fp16Options& options) {
    const Fp16Options unset;
    const std::string dynamic = "a dynamic scale, loss_scale: 0";
    toolbox::check_idle(name, "initial_scale_power", options.initial_scale_power, unset.initial_scale_power, dynamic);
    toolbox::check_idle(name, "loss_scale_window", options.loss_scale_window, unset.loss_scale_window, dynamic);
    toolbox::check_idle(name, "hysteresis", options.hysteresis, unset.hysteresis, dynamic);
    toolbox::check_idle(name, "consecutive_hysteresis", options.consecutive_hysteresis, false, dynamic);
    toolbox::check_idle(name, "min_loss_scale", options.min_loss_scale, unset.min_loss_scale, dynamic);
  }

  bool is_static() const { return static_scale_ > 0.0; }

  PluginContext& context_;
  DTypes dtypes_;
  double static_scale_;  // 0: none
  DynamicLossScale scale_;
  SkipPolicy skips_;
  std::int64_t at_minimum_ = -1;  // the step that ended the run
};

}  // namespace

STRATA_PLUGIN(Fp16, Fp16Options, FP16_OPTIONS)
