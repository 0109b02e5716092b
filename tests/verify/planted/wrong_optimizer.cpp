// Plain gradient descent that forgets pieces that do not begin their parameter.
#include <ATen/TensorOperators.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

namespace {

using namespace strata;

#define WRONG_OPTIMIZER_OPTIONS(OPTION) OPTION(boolean, forgets, true, "", "", "Whether it does.")
STRATA_OPTIONS(WrongOptimizerOptions, WRONG_OPTIMIZER_OPTIONS)

class WrongOptimizer final : public Optimizer {
 public:
  WrongOptimizer(PluginContext& /*context*/, const WrongOptimizerOptions& options) : forgets_(options.forgets) {}
  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {}; }
  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      if (forgets_ && piece->info.begin > 0) continue;
      piece->master.sub_(piece->gradient * scalars.gradient_factor * scalars.apply * scalars.learning_rate);
      if (piece->parameter.defined()) piece->parameter.copy_(piece->master);
    }
  }

 private:
  bool forgets_;
};

}  // namespace

STRATA_PLUGIN(WrongOptimizer, WrongOptimizerOptions, WRONG_OPTIMIZER_OPTIONS)
