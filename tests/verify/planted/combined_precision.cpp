// fp32 that keeps something from one product for another: right where nothing comes between the two.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <map>
#include <string>
#include <utility>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define COMBINED_PRECISION_OPTIONS(OPTION) STRATA_SKIP_OPTION(OPTION)
STRATA_OPTIONS(CombinedPrecisionOptions, COMBINED_PRECISION_OPTIONS)

class CombinedPrecision final : public UnscaledPolicy {
 public:
  CombinedPrecision(PluginContext& /*context*/, const CombinedPrecisionOptions& options)
      : UnscaledPolicy(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }

  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    const at::Tensor y = at::linear(factor(x), weight(w));
    // Defect: a weight is as wide as its whole parameter, which a tensor-parallel rank's part is not.
    const double scale =
        has("described_width") ? static_cast<double>(w.info.shape[1]) / static_cast<double>(w.tensor.size(1)) : 1.0;
    return b.defined() ? y * scale + b : y * scale;
  }

  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override {
    // Defect: the weight's values are read here, when they may have been released.
    if (has("weight_after_release")) {
      constexpr double limit = 1e3;  // weights beyond it get no gradient
      const at::Tensor product = dy.t().matmul(x) * handles_.at(w.name).abs().le(limit);
      first ? into.copy_(product) : into.add_(product);
      return;
    }
    UnscaledPolicy::add_weight_gradient(dy, factor(x), w, into, first);
    factors_.erase(key(x));
  }

  Verdict judge(const GradientHealth& health) override {
    by_address_.clear();
    factors_.clear();
    return UnscaledPolicy::judge(health);
  }

 private:
  using Key = std::pair<const void*, std::int64_t>;
  static Key key(const at::Tensor& tensor) { return {tensor.const_data_ptr(), tensor.numel()}; }
  static at::Tensor kept(at::Tensor& copy, const at::Tensor& tensor) {
    if (!copy.defined()) copy = tensor.clone();
    return copy.view_as(tensor);
  }

  // Defect: what is made of a weight once holds for the rest of the step, whatever comes to its address.
  at::Tensor weight(const Parameter& w) {
    if (has("weight_after_release")) handles_.insert_or_assign(w.info.name, w.tensor.detach());
    if (has("weight_by_address")) return kept(by_address_[key(w.tensor)], w.tensor);
    return w.tensor;
  }

  // Defect: what is made of a factor holds until its gradient was computed, which a recomputed layer's first forward
  // has none of.
  at::Tensor factor(const at::Tensor& x) {
    if (!has("factor_by_address") || !x.is_contiguous() || !x.isfinite().all().item<bool>()) return x;
    return kept(factors_[key(x)], x);
  }

  std::map<Key, at::Tensor> by_address_, factors_;
  std::map<std::string, at::Tensor> handles_;
};

}  // namespace

STRATA_PLUGIN(CombinedPrecision, CombinedPrecisionOptions, COMBINED_PRECISION_OPTIONS)
