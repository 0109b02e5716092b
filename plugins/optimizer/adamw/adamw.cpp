#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/element_pass.hpp>

#include "adamw_step.hpp"

namespace {

using namespace strata;

#define ADAMW_OPTIONS(OPTION)                                                                  \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "",                                    \
         "Decay rates of the first and second moment; both below 1.")                          \
  OPTION(number, epsilon, 1e-8, "min=0", "", "Added to the square root of the second moment.") \
  OPTION(number, weight_decay, 0.01, "min=0", "",                                              \
         "Decoupled weight decay: each step multiplies parameters by 1 - learning rate x this.")
STRATA_OPTIONS(AdamwOptions, ADAMW_OPTIONS)

class Adamw final : public Optimizer {
 public:
  Adamw(PluginContext& /*context*/, const AdamwOptions& options) {
    if (options.betas.size() != 2 || options.betas[0] >= 1.0 || options.betas[1] >= 1.0) {
      throw UserError("optimizer adamw: betas must be two numbers from 0 to below 1, e.g. [0.9, 0.999]");
    }
    hyperparameters_ = {options.betas[0], options.betas[1], options.epsilon, options.weight_decay};
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"exp_avg"}, {"exp_avg_sq"}}; }

  bool takes_momentum() const override { return true; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece*> in_host_memory;
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) continue;  // in place: a dry run has nothing to count
      if (takes_element_pass(*piece)) {
        in_host_memory.push_back(piece);
      } else if (adamw::takes_operator_step(*piece)) {
        adamw::adamw_operator_step(*piece, scalars, hyperparameters_);
      } else {
        adamw::adamw_reference_step(*piece, scalars, hyperparameters_);
      }
    }
    if (!in_host_memory.empty()) adamw::adamw_step(in_host_memory, scalars, hyperparameters_);
  }

 private:
  adamw::AdamwHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(Adamw, AdamwOptions, ADAMW_OPTIONS)
