// Precision policy rounded: bf16 whose weight gradients are rounded to bf16, each micro-batch's, before they are added
// in fp32, as libtorch's own operators make one do. It shows what add_product (<strata/toolbox/product.hpp>) is worth
// where it does not round.
#include <strata/plugin_context.hpp>
#include <strata/toolbox/bf16_policy.hpp>

#include <algorithm>

namespace {

using namespace strata;

STRATA_OPTIONS(RoundedOptions, STRATA_BF16_OPTIONS)

class Rounded final : public Bf16Policy {
 public:
  Rounded(PluginContext& /*context*/, const RoundedOptions& options) : Bf16Policy(options) {}

  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& /*w*/,
                           const at::Tensor& into, bool first) override {
    constexpr std::int64_t rows_at_a_time = 1024;
    for (std::int64_t begin = 0; begin < into.size(0); begin += rows_at_a_time) {
      const std::int64_t length = std::min(rows_at_a_time, into.size(0) - begin);
      const at::Tensor part = product(dy.t().narrow(0, begin, length), x), rows = into.narrow(0, begin, length);
      first ? rows.copy_(part) : rows.add_(part.to(rows.scalar_type()));
    }
  }
};

}  // namespace

STRATA_PLUGIN(Rounded, RoundedOptions, STRATA_BF16_OPTIONS)
