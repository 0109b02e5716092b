// Parameters and activations are bf16, and the operands of a layer's matmuls 8 bits with one scale for a tensor: E4M3,
// output gradients E5M2 (Micikevicius et al., arXiv 2209.05433). On a GPU that multiplies such numbers they are
// multiplied as they are; elsewhere they are rounded to them and multiplied in bf16, with the same values.
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>
#include <strata/toolbox/eight_bit_policy.hpp>
#include <strata/toolbox/eight_bits.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/weight_code.hpp>

#include <optional>
#include <set>

#include "magnitude_history.hpp"
#include "scaled_product.hpp"

namespace {

using namespace strata;
using fp8::format_of;
using fp8::MagnitudeHistory;
using fp8::Packed;

#define FP8_OPTIONS(OPTION)                                                                                            \
  OPTION(text, scaling, "current", "one_of=current|delayed", "",                                                       \
         "Source of an operand's scale. current: its own largest magnitude; delayed: its largest magnitude on any "    \
         "rank in the previous steps.")                                                                                \
  OPTION(integer, history, 16, "min=1,max=1024", "steps",                                                              \
         "Number of previous steps whose magnitudes scaling: "                                                         \
         "delayed uses.")                                                                                              \
  OPTION(text, gather, "bf16", "one_of=bf16|fp8", "",                                                                  \
         "Format of gathered weights. fp8: weights of 8-bit matmuls are sent in 8 bits, half the bytes, with the "     \
         "scale of their largest magnitude on any rank. They are rounded once per gather instead of once per matmul, " \
         "to the same numbers, so no loss changes. With scaling: delayed, the scale of gathered weights is still "     \
         "that of their current magnitude. ZeRO stages 1 and 2, which keep weights whole, then store this rank's "     \
         "shard twice; ddp gathers no weights.")                                                                       \
  STRATA_EIGHT_BIT_OPTIONS(OPTION)
STRATA_OPTIONS(Fp8Options, FP8_OPTIONS)

class Fp8 final : public EightBitPolicy, public WeightCode {
 public:
  Fp8(PluginContext& context, const Fp8Options& options)
      : EightBitPolicy(options), context_(context), gathers_rounded_(options.gather == "fp8") {
    if (options.scaling == "delayed")
      history_.emplace(options.history);
    else
      toolbox::check_idle(context.plugin_name(), "history", options.history, Fp8Options().history, "scaling: delayed");
  }

  void run_begins(RunContext& run) override {
    store_ = &run.store();
    if (store_->dry_run()) return;
    const std::string obstacle = fp8::obstacle(store_->device());
    by_device_ = obstacle.empty();
    log(by_device_ ? "8-bit products are the device's own"
                   : "8-bit products are emulated, operands are rounded and multiplied in bf16: " + obstacle);
  }

  void attach(const std::vector<LayerInfo>& layers) override {
    EightBitPolicy::attach(layers);
    if (history_ && store_ != nullptr) history_->attach(layers, *store_);
  }

  at::Tensor maxima() override { return history_ ? history_->maxima() : at::Tensor(); }

  Verdict judge(const GradientHealth& health) override {
    if (history_ && health.finite) history_->step_ended();
    return EightBitPolicy::judge(health);
  }

  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    if (!by_device(w.info, w.tensor.size(1), w.tensor.size(0))) return EightBitPolicy::linear(x, w, b);
    const Packed rows = packed(x.reshape({-1, x.size(-1)}), w.info, Operand::Input);
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = w.tensor.size(0);
    return scaled_product(rows, packed(w.tensor, w.info, Operand::Weight), b, true).view(shape);
  }

  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override {
    if (!by_device(w.info, w.tensor.size(0), w.tensor.size(1))) return EightBitPolicy::input_gradient(dy, w);
    return scaled_product(packed(dy, w.info, Operand::Gradient), packed(w.tensor, w.info, Operand::Weight).transposed(),
                          {}, false);
  }

  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override {
    if (!by_device(w, x.size(0), x.size(1))) return EightBitPolicy::add_weight_gradient(dy, x, w, into, first);
    const at::Tensor product = scaled_product(packed(dy, w, Operand::Gradient).transposed(),
                                              packed(x, w, Operand::Input).transposed(), {}, false);
    first ? into.copy_(product) : into.add_(product);
  }

  bool is_wanted() const override { return gathers_rounded_; }
  bool travels(const ParameterInfo& weight) const override { return is_only_rounded(weight); }
  void comes_decoded(const ParameterInfo& weight) override { decoded_.insert(weight.name); }
  void encode(const at::Tensor& values, const at::Tensor& magnitude, const at::Tensor& bytes) const override {
    to_bytes(values, power_of_two(magnitude, e4m3), e4m3, bytes);
  }
  void decode(const at::Tensor& bytes, const at::Tensor& magnitude, const at::Tensor& values) const override {
    from_bytes(bytes, power_of_two(magnitude, e4m3), e4m3, values);
  }

  void save(StateWriter& writer) const override {
    EightBitPolicy::save(writer);
    writer.text("scaling", history_ ? "delayed" : "current");
    if (history_) history_->save(writer);
  }
  void load(StateReader& reader, int version) override {
    EightBitPolicy::load(reader, version);
    if (reader.text("scaling") == "delayed" && history_) history_->load(reader);
  }

 private:
  // [Note: rounded twice] A value rounded by a scale is a number of the format times that scale, and rounding may have
  // made the largest smaller, but not to half of it. Its own scale is then the same, or twice as large: by that it is
  // a number of the format too, and rounding leaves it as it is.
  bool is_rounded(const ParameterInfo& weight, Operand operand) const {
    return operand == Operand::Weight && decoded_.contains(weight.name);
  }
  at::Tensor scale_of(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand) {
    const at::Tensor magnitude = largest_magnitude(tensor);
    if (!history_ || is_rounded(weight, operand)) return power_of_two(magnitude, format_of(operand));
    return history_->scale(magnitude, weight, operand);
  }
  at::Tensor rounded_operand(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand,
                             int /*dimension*/) override {
    if (is_rounded(weight, operand)) return tensor;
    return rounded(tensor, scale_of(tensor, weight, operand), format_of(operand));
  }
  Packed packed(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand) {
    return {tensor, scale_of(tensor, weight, operand), format_of(operand)};
  }

  // A product with `columns` columns, each element a sum of `sum` terms.
  bool by_device(const ParameterInfo& weight, std::int64_t sum, std::int64_t columns) {
    if (!by_device_ || stays_high(weight)) return false;
    if (fp8::takes(sum, columns)) return true;
    if (told_.insert(weight.name).second)
      log("products with " + weight.name + " that sum " + std::to_string(sum) + " numbers for " +
          std::to_string(columns) + " columns are emulated: the device needs multiples of 16 for both");
    return false;
  }
  void log(const std::string& text) {
    if (context_.rank() == 0) context_.log(LogLevel::Info, text);
  }

  PluginContext& context_;
  std::optional<MagnitudeHistory> history_;  // none: the operand's own magnitude
  bool gathers_rounded_;
  std::set<std::string> decoded_;  // weights that come rounded
  StateStore* store_ = nullptr;
  bool by_device_ = false;
  std::set<std::string> told_;  // weights whose emulation has been logged
};

}  // namespace

STRATA_PLUGIN(Fp8, Fp8Options, FP8_OPTIONS)
