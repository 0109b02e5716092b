// fp32 that takes a weight to be as wide as its whole parameter, which a tensor-parallel rank's part is not.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <string>

namespace {

using namespace strata;

#define COMBINED_PRECISION_OPTIONS(OPTION) \
  STRATA_SKIP_OPTION(OPTION)               \
  OPTION(text, defect, "none", "one_of=none|described_width", "", "What is wrong.")
STRATA_OPTIONS(CombinedPrecisionOptions, COMBINED_PRECISION_OPTIONS)

class CombinedPrecision final : public UnscaledPolicy {
 public:
  CombinedPrecision(PluginContext& /*context*/, const CombinedPrecisionOptions& options)
      : UnscaledPolicy(options.max_consecutive_skips), defect_(options.defect) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    const at::Tensor y = at::linear(x, w.tensor);
    const double scale = defect_ == "described_width" && w.tensor.size(1) != w.info.shape[1]
                             ? static_cast<double>(w.info.shape[1]) / static_cast<double>(w.tensor.size(1))
                             : 1.0;
    return b.defined() ? y * scale + b : y * scale;
  }

 private:
  std::string defect_;
};

}  // namespace

STRATA_PLUGIN(CombinedPrecision, CombinedPrecisionOptions, COMBINED_PRECISION_OPTIONS)
