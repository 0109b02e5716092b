// Gradient descent in which every row of a matrix moves by the same length: what is wrong shows where a parameter is
// cut or counted in another way than on the ranks of a plain run.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/element_step.hpp>

#include <map>
#include <string>
#include <utility>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

STRATA_NO_OPTIONS(NoOptions)

// The row of each element of the piece.
at::Tensor rows_of(const PieceInfo& piece) {
  at::Tensor elements = at::arange(piece.begin, piece.end, at::kLong);
  if (const PartPlaces& places = piece.places; places.length > 0)
    elements =
        elements.div(places.length, "floor") * places.distance + places.first + elements.remainder(places.length);
  std::int64_t width = 1;
  for (std::size_t i = 1; i < piece.shape.size(); ++i) width *= piece.shape[i];
  const at::Tensor rows = elements.div(width, "floor");
  return has("row_of_padding") ? rows : rows.clamp_max(piece.shape.front() - 1);  // padding's gradient is 0
}

at::Tensor scaled_gradient(const Piece& piece, const StepScalars& scalars) {
  return piece.gradient.to(at::kFloat) * scalars.gradient_factor;
}

class CombinedOptimizer final : public Optimizer {
 public:
  CombinedOptimizer(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {}; }
  std::int64_t sums(const PieceInfo& piece, int /*round*/) const override { return piece.shape.front(); }

  // Defect: what is scaled here is kept for step(). A rank may measure another part of a piece than the one it updates.
  void measure(const Piece& part, int /*round*/, const StepScalars& scalars) override {
    const at::Tensor gradient = scaled_gradient(part, scalars);
    if (has("direction_of_measure")) measured_[{part.info.parameter, part.info.begin}] = gradient;
    part.sums.index_add_(0, rows_of(part.info), gradient.square().to(at::kDouble));
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    for (const Piece* const piece : pieces) {
      const at::Tensor gradient = has("direction_of_measure") ? measured_.at({piece->info.parameter, piece->info.begin})
                                                              : scaled_gradient(*piece, scalars);
      const at::Tensor norms = piece->sums.sqrt().index_select(0, rows_of(piece->info)).to(at::kFloat);
      const at::Tensor way = gradient / (norms + 1e-8) * (scalars.learning_rate * piece->learning_rate_factor);
      write_weights(*piece, 0, piece->master.to(at::kFloat) - way, scalars);
    }
  }

 private:
  std::map<std::pair<std::string, std::int64_t>, at::Tensor> measured_;
};

}  // namespace

STRATA_PLUGIN(CombinedOptimizer, NoOptions)
