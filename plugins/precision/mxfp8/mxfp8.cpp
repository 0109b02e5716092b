// OCP's MXFP8 as it is trained with (arXiv 2506.08027): all operands in E4M3, 32 numbers along the sum sharing a scale,
// which is rounded up, so that no number is cut off. A tensor and its transpose are rounded apart, each from bf16. No
// device computes it here: it shows what a run in this format converges to.
#include <strata/plugin_context.hpp>
#include <strata/run_context.hpp>
#include <strata/toolbox/eight_bit_policy.hpp>
#include <strata/toolbox/eight_bits.hpp>

namespace {

using namespace strata;

STRATA_OPTIONS(Mxfp8Options, STRATA_EIGHT_BIT_OPTIONS)

class Mxfp8 final : public EightBitPolicy {
 public:
  Mxfp8(PluginContext& context, const Mxfp8Options& options) : EightBitPolicy(options), context_(context) {}

  void run_begins(RunContext& run) override {
    if (context_.rank() == 0 && !run.store().dry_run())
      context_.log(LogLevel::Info, "8-bit products are emulated: operands are rounded and multiplied in bf16");
  }

 private:
  at::Tensor rounded_operand(const at::Tensor& tensor, const ParameterInfo& /*weight*/, Operand /*operand*/,
                             int dimension) override {
    if (dimension == 1) return rounded_by_blocks(tensor, e4m3);
    return rounded_by_blocks(tensor.t().contiguous(), e4m3).t();
  }

  PluginContext& context_;
};

}  // namespace

STRATA_PLUGIN(Mxfp8, Mxfp8Options, STRATA_EIGHT_BIT_OPTIONS)
