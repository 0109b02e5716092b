// Parameters and activations are bf16, and the operands of a layer's matmuls 8 bits with one scale for a tensor: E4M3,
// output gradients E5M2 (Micikevicius et al., arXiv 2209.05433). On a GPU that multiplies such numbers they are
// multiplied as they are; elsewhere they are rounded to them and multiplied in bf16, with the same values.
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>
#include <strata/toolbox/eight_bit_policy.hpp>
#include <strata/toolbox/eight_bits.hpp>

#include <optional>
#include <set>

#include "magnitude_history.hpp"
#include "scaled_product.hpp"

namespace {

using namespace strata;
using fp8::format_of;
using fp8::MagnitudeHistory;
using fp8::Packed;

#define FP8_OPTIONS(OPTION)                                                                                           \
  OPTION(                                                                                                             \
      text, scaling, "current", "one_of=current|delayed", "",                                                         \
      "What an operand's scale is made of: its own largest magnitude, or the largest that it had on any rank in the " \
      "last steps.")                                                                                                  \
  OPTION(integer, history, 16, "min=1,max=1024", "steps", "How far back scaling: delayed looks.")                     \
  STRATA_EIGHT_BIT_OPTIONS(OPTION)
STRATA_OPTIONS(Fp8Options, FP8_OPTIONS)

class Fp8 final : public EightBitPolicy {
 public:
  Fp8(PluginContext& context, const Fp8Options& options) : EightBitPolicy(options), context_(context) {
    if (options.scaling == "delayed") history_.emplace(options.history);
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

  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w,
                           const at::Tensor& into) override {
    if (!by_device(w, x.size(0), x.size(1))) return EightBitPolicy::add_weight_gradient(dy, x, w, into);
    into.add_(scaled_product(packed(dy, w, Operand::Gradient).transposed(), packed(x, w, Operand::Input).transposed(),
                             {}, false));
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
  at::Tensor scale_of(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand) {
    const at::Tensor magnitude = largest_magnitude(tensor);
    return history_ ? history_->scale(magnitude, weight, operand) : power_of_two(magnitude, format_of(operand));
  }
  at::Tensor rounded_operand(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand,
                             int /*dimension*/) override {
    return rounded(tensor, scale_of(tensor, weight, operand), format_of(operand));
  }
  Packed packed(const at::Tensor& tensor, const ParameterInfo& weight, Operand operand) {
    return {tensor, scale_of(tensor, weight, operand), format_of(operand)};
  }

  // A product over `sum` numbers with so many columns.
  bool by_device(const ParameterInfo& weight, std::int64_t sum, std::int64_t columns) {
    if (!by_device_ || stays_high(weight)) return false;
    if (fp8::takes(sum, columns)) return true;
    if (told_.insert(weight.name).second)
      log("products with " + weight.name + " that sum " + std::to_string(sum) + " numbers for " +
          std::to_string(columns) + " columns are emulated: the device takes multiples of 16 of both");
    return false;
  }
  void log(const std::string& text) {
    if (context_.rank() == 0) context_.log(LogLevel::Info, text);
  }

  PluginContext& context_;
  std::optional<MagnitudeHistory> history_;  // none: the operand's own magnitude
  StateStore* store_ = nullptr;
  bool by_device_ = false;
  std::set<std::string> told_;  // weights of which the log said that they are emulated
};

}  // namespace

STRATA_PLUGIN(Fp8, Fp8Options, FP8_OPTIONS)
