// fp32 that keeps a weight it has seen for the rest of the step, by its address: right where every weight has its own,
// and wrong where a partitioner gathers one layer after the other to the same place.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <map>
#include <mutex>
#include <utility>

namespace {

using namespace strata;

#define WRONG_PRECISION_OPTIONS(OPTION) STRATA_SKIP_OPTION(OPTION)
STRATA_OPTIONS(WrongPrecisionOptions, WRONG_PRECISION_OPTIONS)

class WrongPrecision final : public UnscaledPolicy {
 public:
  WrongPrecision(PluginContext& /*context*/, const WrongPrecisionOptions& options)
      : UnscaledPolicy(options.max_consecutive_skips) {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    const std::lock_guard lock(mutex_);
    at::Tensor& kept = kept_[{w.tensor.const_data_ptr(), w.tensor.numel()}];
    if (!kept.defined()) kept = w.tensor.clone();
    return at::linear(x, kept.view_as(w.tensor), b);
  }
  Verdict judge(const GradientHealth& health) override {
    const std::lock_guard lock(mutex_);
    kept_.clear();
    return UnscaledPolicy::judge(health);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<const void*, std::int64_t>, at::Tensor> kept_;
};

}  // namespace

STRATA_PLUGIN(WrongPrecision, WrongPrecisionOptions, WRONG_PRECISION_OPTIONS)
