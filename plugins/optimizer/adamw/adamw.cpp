#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include "adamw_step.hpp"

namespace {

using namespace strata;

#define ADAMW_OPTIONS(OPTION)                                                                                       \
  STRATA_MOMENT_OPTIONS(OPTION)                                                                                     \
  OPTION(number, weight_decay, 0.01, "min=0", "",                                                                   \
         "Weight decay. Decoupled: each step multiplies parameters by 1 - learning rate x weight_decay. Otherwise " \
         "weight_decay x parameter is added to the gradient.")                                                      \
  OPTION(boolean, decoupled, true, "", "", "Decoupled weight decay (AdamW); false: Adam with an L2 penalty.")       \
  OPTION(text, moments, "fp32", "one_of=fp32|bf16", "",                                                             \
         "Format of both moments. bf16 halves their memory, and needs a second beta of at most 0.996.")
STRATA_OPTIONS(AdamwOptions, ADAMW_OPTIONS)

class Adamw final : public Optimizer {
 public:
  Adamw(PluginContext& /*context*/, const AdamwOptions& options)
      : moments_(options.moments == "bf16" ? at::kBFloat16 : at::kFloat) {
    hyperparameters_ = adam_hyperparameters("adamw", options);
    hyperparameters_.decoupled = options.decoupled;
    // With 8 significant bits, v (1 - x) rounds to v where x is below 2^-9, and for some v where it is below 2^-8.
    if (moments_ == at::kBFloat16 && 1.0 - options.betas[1] < 0x1p-8)
      throw UserError(
          "optimizer adamw: betas is [{}, {}] and moments is bf16; in bf16 a second moment cannot decay by less than "
          "1/256 per step, so it would only grow; set a second beta of at most 0.996, or moments: fp32",
          options.betas[0], options.betas[1]);
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override {
    return {{"exp_avg", moments_}, {"exp_avg_sq", moments_}};
  }

  bool takes_momentum() const override { return true; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    adamw::step(pieces, scalars, hyperparameters_);
  }

 private:
  at::ScalarType moments_;
  AdamHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(Adamw, AdamwOptions, ADAMW_OPTIONS)
