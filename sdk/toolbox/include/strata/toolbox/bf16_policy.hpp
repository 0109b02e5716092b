// Policies whose parameters and activations are bf16.
#pragma once
#include <strata/options.hpp>
#include <strata/toolbox/skip_policy.hpp>
#include <strata/toolbox/with_products.hpp>

#include <string>

namespace strata {

#define STRATA_BF16_OPTIONS(OPTION)                                                                                    \
  OPTION(text, accumulation, "fp32", "one_of=fp32|bf16", "",                                                           \
         "Format in which gradients are accumulated over micro-batches. bf16 halves their memory and loses small "     \
         "gradients.")                                                                                                 \
  OPTION(text, reduction, "fp32", "one_of=fp32|bf16", "", "Format in which gradients are reduced over ranks.")         \
  OPTION(text, master, "fp32", "one_of=fp32|bf16", "",                                                                 \
         "Format of the updated weights. bf16: the parameters themselves, without a master copy; the optimizers that " \
         "come with Strata then use stochastic rounding.")                                                             \
  STRATA_SKIP_OPTION(OPTION)

class Bf16Policy : public WithProducts<UnscaledPolicy> {
 public:
  // Reads options that include STRATA_BF16_OPTIONS.
  template <typename Options>
  explicit Bf16Policy(const Options& options)
      : WithProducts(options.max_consecutive_skips),
        dtypes_{at::kBFloat16, dtype_of(options.accumulation), dtype_of(options.reduction), dtype_of(options.master)} {}

  DTypes dtypes(const ParameterInfo& /*parameter*/) const override { return dtypes_; }
  at::ScalarType activation() const override { return at::kBFloat16; }

 private:
  static at::ScalarType dtype_of(const std::string& name) { return name == "bf16" ? at::kBFloat16 : at::kFloat; }

  DTypes dtypes_;
};

}  // namespace strata
