#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/idle_option.hpp>

#include "sgd_step.hpp"

namespace {

using namespace strata;

#define SGD_OPTIONS(OPTION)                                                                                         \
  OPTION(number, momentum, 0.0, "min=0", "", "Momentum factor; 0: no momentum and no state.")                       \
  OPTION(number, dampening, 0.0, "min=0,max=1", "", "Dampening: the momentum receives (1 - dampening) x gradient.") \
  OPTION(boolean, nesterov, false, "", "", "Nesterov momentum; needs momentum and no dampening.")                   \
  OPTION(number, weight_decay, 0.0, "min=0", "", "Weight decay: weight_decay x parameter is added to the gradient.")
STRATA_OPTIONS(SgdOptions, SGD_OPTIONS)

class Sgd final : public Optimizer {
 public:
  Sgd(PluginContext& context, const SgdOptions& options)
      : hyperparameters_{options.momentum, options.dampening, options.weight_decay, options.nesterov} {
    if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0)) {
      throw UserError("optimizer sgd: nesterov is true; it needs momentum above 0 and dampening 0");
    }
    if (options.momentum == 0.0)
      toolbox::check_idle(context.plugin_name(), "dampening", options.dampening, 0.0, "momentum");
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override {
    if (hyperparameters_.momentum == 0.0) return {};
    return {{"momentum_buffer"}};
  }

  // With the option 0 it keeps no state that a momentum could act on.
  bool takes_momentum() const override { return hyperparameters_.momentum != 0.0; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    sgd::sgd_step(pieces, scalars, hyperparameters_);
  }

 private:
  sgd::SgdHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(Sgd, SgdOptions, SGD_OPTIONS)
