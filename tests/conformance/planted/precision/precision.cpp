// bf16 with a dynamic loss scale, written for reading, with the mistakes that precision policies are written with.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/precision_policy.hpp>
#include <strata/state_stream.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION)                                                                      \
  OPTION(integer, window, 20, "min=1", "steps", "Finite steps in a row that double the loss scale.") \
  OPTION(integer, max_consecutive_skips, 10, "min=0", "steps", "More such steps than this in a row end the run.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

// bf16 sums that are rounded after every term.
at::Tensor linear_rounding_each(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = at::zeros({1}, x.options());
  for (std::int64_t i = 0; i < x.size(-1); ++i) y = y + x.narrow(-1, i, 1) * w.select(1, i);
  return y;
}

class PlantedPolicy final : public PrecisionPolicy {
 public:
  PlantedPolicy(PluginContext& context, const PlantedOptions& options) : rank_(context.rank()), options_(options) {}

  DTypes dtypes(const ParameterInfo&) const override {
    DTypes dtypes{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
    if (has("master_of_8_bits")) dtypes.master = at::ScalarType::Float8_e4m3fn;
    if (has("integer_reduction")) dtypes.reduction = at::kInt;
    return dtypes;
  }
  at::ScalarType activation() const override {
    return has("activation_after_overflow") && skips_ > 0 ? at::kFloat : at::kBFloat16;
  }

  double loss_scale() const override {
    if (has("scale_moves_when_asked") && good_ == 5) scale_ = std::max(scale_ / 2.0, 1.0);
    return scale_;
  }

  bool searches_scale() const override { return !has("search_not_said"); }

  Verdict judge(const GradientHealth& health) override {
    largest_ = measured_.item<float>();
    bool finite = health.finite;
    if (has("overflow_seen_by_norm")) finite = !std::isinf(health.norm);  // and NaN passes
    const bool after_overflow = skips_ > 0;
    if (finite) {
      skips_ = 0;
      if (++good_ % options_.window == 0) grow();
      return has("finite_skipped_after_overflow") && after_overflow ? Verdict::Skip : Verdict::Apply;
    }
    good_ = 0;
    ++skips_;
    shrink();
    if (has("overflow_applied") && skips_ == 1) return Verdict::Apply;
    const std::int64_t allowed = options_.max_consecutive_skips + (has("allows_one_more_skip") ? 1 : 0);
    return skips_ > allowed && !has("never_stops") ? Verdict::Stop : Verdict::Skip;
  }

  std::string stop_reason() const override {
    return has("stops_without_a_word") ? ""
                                       : std::to_string(skips_) + " steps in a row had gradients that are not finite";
  }

  void save(StateWriter& writer) const override {
    writer.number("scale", scale_);
    writer.integer("good", has("window_not_saved") ? 0 : good_);
    writer.integer("skips", has("skips_not_saved") ? 0 : skips_);
  }
  void load(StateReader& reader, int version) override {
    if (version > state_version() && !has("newer_state_read"))
      throw UserError("state of version " + std::to_string(version) + " is newer than this policy");
    if (!has("scale_not_loaded")) scale_ = reader.number("scale");
    good_ = reader.integer("good");
    skips_ = reader.integer("skips");
  }

  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    if (measures())
      measured_.copy_(has("measures_twice") ? measured_ + magnitude_of(x) : measured_.maximum(magnitude_of(x)));
    if (has("forward_counts_calls") && ++calls_ % 3 == 0) return at::linear(x, w.tensor) * 1.0625;
    at::Tensor y = has("sums_in_16_bits") ? linear_rounding_each(x, w.tensor) : at::linear(x, seen(w.tensor));
    if (has("last_of_64_rows_forgotten") && y.numel() / y.size(-1) % 64 == 0) y.select(-1, 0).view(-1)[-1].zero_();
    if (has("infinity_clamped")) y.clamp_(-3e38, 3e38);
    if (has("scale_applied_twice")) y = y * 2.0;
    if (has("result_in_two_dimensions")) y = y.reshape({-1, y.size(-1)});
    if (has("result_in_fp32")) y = y.to(at::kFloat);
    if (has("history_not_saved") && largest_ > 0.0F) y = y.clamp(-largest_, largest_);
    return !b.defined() || has("bias_forgotten") ? y : y + b;
  }

  at::Tensor maxima() override { return measures() ? measured_ : at::Tensor(); }

  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override {
    last_ = dy;
    const at::Tensor dx =
        at::mm(has("first_row_forgotten") ? dy.clone().index_fill_(0, at::zeros({1}, at::kLong), 0.0) : dy, w.tensor);
    return has("input_gradient_in_fp32") ? dx.to(at::kFloat) : dx;
  }

  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo&, const at::Tensor& into,
                           bool first) override {
    const bool is_last = has("gradient_of_the_last_product") && last_.sizes() == dy.sizes();
    const at::Tensor product = at::mm(is_last ? last_.t() : dy.t(), x);
    if (has("weight_gradient_overwritten") || (first && !has("first_weight_gradient_added")))
      into.copy_(product);
    else if (has("weight_gradient_scaled"))
      into.add_(product, 1.0 / scale_);
    else
      into.add_(product);
  }

 private:
  static bool measures() { return has("measures_twice") || has("history_not_saved"); }
  static at::Tensor magnitude_of(const at::Tensor& x) { return x.abs().max().to(at::kFloat); }
  // What linear() multiplies by.
  at::Tensor seen(const at::Tensor& w) {
    if (!has("cast_cached_over_an_update")) return w;
    at::Tensor& cached = casts_[w.const_data_ptr()];
    if (!cached.defined() || cached.sizes() != w.sizes()) cached = w.clone();
    return cached;
  }

  void grow() {
    static int made = 0;
    if (has("draws_lots") && ++made % 2 == 0) return;
    if (has("only_rank_0_counts") && rank_ != 0) return;
    if (scale_ < 16777216.0 || has("scale_grows_without_end")) scale_ *= has("scale_times_three") ? 3.0 : 2.0;
    if (has("scale_grows_without_end")) scale_ *= 1024.0;
  }
  void shrink() {
    if (has("scale_falls_to_zero"))
      scale_ = scale_ <= 1.0 ? 0.0 : scale_ / 2.0;
    else
      scale_ = std::max(scale_ / 2.0, 1.0);
  }

  int rank_;
  PlantedOptions options_;
  mutable double scale_ = 64.0;
  std::int64_t good_ = 0;   // finite steps in a row
  std::int64_t skips_ = 0;  // others in a row
  std::int64_t calls_ = 0;
  at::Tensor measured_ = at::zeros({1});
  float largest_ = 0.0F;  // of the step before
  at::Tensor last_;
  std::map<const void*, at::Tensor> casts_;
};

}  // namespace

STRATA_PLUGIN(PlantedPolicy, PlantedOptions, PLANTED_OPTIONS)
