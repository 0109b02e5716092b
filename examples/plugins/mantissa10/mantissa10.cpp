// A precision policy that changes how a matmul runs and nothing else: its two inputs are rounded to `mantissa_bits`
// bits before the product is taken in fp32, in the forward and in the backward. With 10 bits it shows on a CPU what
// TF32 hardware does to a run.
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/precision_policy.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <cstdint>

namespace {

using namespace strata;

#define MANTISSA_OPTIONS(OPTION)                                                                             \
  OPTION(integer, mantissa_bits, 10, "min=7,max=23", "bits", "Mantissa bits kept in the inputs of matmuls.") \
  STRATA_SKIP_OPTION(OPTION)
STRATA_OPTIONS(MantissaOptions, MANTISSA_OPTIONS)

class Mantissa final : public UnscaledPolicy {
 public:
  Mantissa(PluginContext&, const MantissaOptions& options)
      : UnscaledPolicy(options.max_consecutive_skips), dropped_(23 - options.mantissa_bits) {}

  DTypes dtypes(const ParameterInfo&) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }

  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    return at::linear(rounded(x), rounded(w.tensor), b);
  }
  at::Tensor input_gradient(const at::Tensor& dy, const Parameter& w) override { return at::mm(dy, rounded(w.tensor)); }
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override {
    PrecisionPolicy::add_weight_gradient(dy, rounded(x), w, into, first);
  }

 private:
  // Rounds half away from zero in the last kept bit.
  at::Tensor rounded(const at::Tensor& value) const {
    if (dropped_ == 0) return value;
    const at::Tensor bits = value.contiguous().view(at::kInt);
    const std::int32_t half = std::int32_t{1} << (dropped_ - 1);
    return bits.add(half).bitwise_and(~((std::int32_t{1} << dropped_) - 1)).view(at::kFloat);
  }

  std::int64_t dropped_;  // bits
};

}  // namespace

STRATA_PLUGIN(Mantissa, MantissaOptions, MANTISSA_OPTIONS)
