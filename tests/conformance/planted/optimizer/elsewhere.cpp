// A gradient descent whose master weights are the average of the weights that it trains at, the newest with a quarter,
// and the mistakes that such are written with.
#include <ATen/TensorOperators.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

STRATA_NO_OPTIONS(PlantedOptions)

class PlantedElsewhere final : public Optimizer {
 public:
  PlantedElsewhere(PluginContext& /*context*/, const PlantedOptions& /*options*/) {}

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"trained_minus_average"}}; }
  bool trains_elsewhere() const override { return true; }

  void write_trained(const Piece& piece) const override {
    piece.parameter.copy_(has("parameter_of_the_master") ? piece.master : trained(piece));
    if (has("trained_weights_into_the_master")) piece.master.copy_(piece.parameter);
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    if (scalars.apply.item<float>() == 0.0F) return;
    constexpr double share = 0.25;
    for (Piece* const piece : pieces) {
      const double rate = scalars.learning_rate * piece->learning_rate_factor;
      const at::Tensor gradient = piece->gradient.to(at::kFloat) * scalars.gradient_factor;
      const at::Tensor ahead = piece->state[0] - gradient * rate, before = piece->master.to(at::kFloat);
      piece->master.copy_(before + ahead * share);
      piece->state[0].copy_(ahead * (1.0 - share));
      piece->parameter.copy_(has("trained_before_the_average") ? before + ahead : trained(*piece));
    }
  }

 private:
  static at::Tensor trained(const Piece& piece) { return piece.master.to(at::kFloat) + piece.state[0]; }
};

}  // namespace

STRATA_PLUGIN(PlantedElsewhere, PlantedOptions)
