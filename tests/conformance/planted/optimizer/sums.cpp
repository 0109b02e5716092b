// A gradient descent that divides by the root mean square of each row's gradients, averaged over steps, and by that of
// the whole update where it is above 1: two rounds with sums, a state of rows, and the mistakes these are written with.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <span>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

#define PLANTED_OPTIONS(OPTION) OPTION(number, decay, 0.9, "min=0,max=1", "", "Decay of the rows' mean squares.")
STRATA_OPTIONS(PlantedOptions, PLANTED_OPTIONS)

class PlantedSums final : public Optimizer {
 public:
  PlantedSums(PluginContext& /*context*/, const PlantedOptions& options) : decay_(options.decay) {}

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    return {{"row_var", at::kFloat, has("state_as_long_as_the_piece") ? rows_in(piece) : rows_of(piece)}};
  }

  int rounds() const override { return 2; }

  std::int64_t sums(const PieceInfo& piece, int round) const override {
    if (round == 1) return 1;
    return has("sums_as_many_as_the_piece_has_rows") ? rows_in(piece) : rows_of(piece);
  }

  void measure(const Piece& part, int round, const StepScalars& scalars) override {
    const at::Tensor squares = (round == 0 ? gradient(part, scalars) : update(part, scalars)).square().to(at::kDouble);
    if (round == 1) {
      const at::Tensor sum = has("mean_of_the_piece") ? squares.mean() : squares.sum();
      if (has("sums_set_and_not_added"))
        part.sums.fill_(sum);
      else
        part.sums.add_(sum);
      return;
    }
    part.sums.index_add_(0, row_numbers(part.info), squares);
    if (has("state_taken_while_measuring")) part.state[0].mul_(decay_);
    if (has("gradient_unscaled_while_measuring")) part.gradient.mul_(scalars.gradient_factor);
  }

  void step(std::span<Piece* const> pieces, int round, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      if (round == 0) {
        at::Tensor mean = piece->sums / columns_of(piece->info);
        if (has("rows_of_others_forgotten")) {
          const at::Tensor numbers = row_numbers(piece->info);
          const at::Tensor own = at::zeros_like(mean).index_fill_(0, numbers, 1.0);
          mean = mean * own;
        }
        write(piece->state[0], piece->state[0] * decay_ + mean.to(at::kFloat) * (1.0 - decay_), scalars);
        continue;
      }
      const double elements = static_cast<double>(rows_of(piece->info)) * columns_of(piece->info);
      const at::Tensor large = (piece->sums / elements).sqrt().clamp_min(1.0).to(at::kFloat);
      const double rate = scalars.learning_rate * piece->learning_rate_factor;
      const at::Tensor updated = piece->master.to(at::kFloat) - update(*piece, scalars) / large * rate;
      write(piece->master, updated, scalars);
      if (piece->parameter.defined()) write(piece->parameter, updated, scalars);
    }
  }

 private:
  static std::int64_t columns_of(const PieceInfo& piece) { return piece.shape.empty() ? 1 : piece.shape.back(); }
  static std::int64_t rows_of(const PieceInfo& piece) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : piece.shape) elements *= extent;
    return elements / columns_of(piece);
  }
  static std::int64_t rows_in(const PieceInfo& piece) {
    return (piece.end - piece.begin + columns_of(piece) - 1) / columns_of(piece);
  }
  static at::Tensor row_numbers(const PieceInfo& piece) {
    const at::Tensor elements = at::arange(piece.begin, piece.end, at::kLong);
    if (!has("rows_of_the_part"))
      for (std::int64_t& element : std::span(elements.mutable_data_ptr<std::int64_t>(), elements.numel()))
        element = piece.places.of(element);
    return at::floor_divide(elements, columns_of(piece));
  }

  static at::Tensor gradient(const Piece& piece, const StepScalars& scalars) {
    return piece.gradient.to(at::kFloat) * scalars.gradient_factor;
  }

  static at::Tensor update(const Piece& piece, const StepScalars& scalars) {
    return gradient(piece, scalars) / (piece.state[0].index_select(0, row_numbers(piece.info)).sqrt() + 1e-8);
  }

  static void write(const at::Tensor& target, const at::Tensor& value, const StepScalars& scalars) {
    target.copy_(at::where(scalars.apply != 0, value.to(target.scalar_type()), target));
  }

  double decay_;
};

}  // namespace

STRATA_PLUGIN(PlantedSums, PlantedOptions, PLANTED_OPTIONS)
