// Optimizer adafactor: Adafactor (Shazeer and Stern, arXiv:1804.04235) as torch.optim.Adafactor computes it. The second
// moment of a matrix is kept as its means over rows and over columns, n + m numbers in place of n m; that of a vector
// is kept whole. With g = gradient x gradient_factor, t = updates + 1 and w = t^beta2_decay:
//
//   round 0  R += w (mean of g^2 over each row - R);  C += w (mean of g^2 over each column - C)
//            or, for a vector, V += w (g^2 - V)
//   round 1  V = R C / max(mean of R, eps[0]);  u = g / sqrt(max(V, eps[0]^2))
//            p = p (1 - lr weight_decay)
//                - u x max(eps[1], rms(p)) x min(lr, 1 / sqrt(t)) / max(1, rms(u) / d),  rms(p) of the p before
//
// Means and root mean squares (rms) are over whole parameters: the sums of the two rounds. A tensor of more dimensions
// is a list of matrices of its last two.
#include <ATen/TensorOperators.h>
#include <strata/error.hpp>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/element_step.hpp>
#include <strata/toolbox/row_blocks.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace strata;

#define ADAFACTOR_OPTIONS(OPTION)                                                                                    \
  OPTION(number, beta2_decay, -0.8, "max=0", "",                                                                     \
         "Exponent of the second moment's update weight: the new squared gradient has the weight step^beta2_decay. " \
         "-1: the mean over all steps.")                                                                             \
  OPTION(numbers, eps, "[1.1920929e-07, 0.001]", "min=0", "",                                                        \
         "Two lower bounds. First: of the mean second moment. Second: of the parameter's root mean square, which "   \
         "scales the step.")                                                                                         \
  OPTION(number, d, 1.0, "min=1", "", "Clipping threshold: maximum root mean square of a parameter's update.")       \
  OPTION(number, weight_decay, 0.0, "min=0", "",                                                                     \
         "Decoupled weight decay: each step multiplies parameters by 1 - learning rate x weight_decay.")
STRATA_OPTIONS(AdafactorOptions, ADAFACTOR_OPTIONS)

// The last two dimensions of a parameter. A vector is one row.
struct Shape {
  bool factored;          // has rows and columns to keep
  std::int64_t columns;   // of a matrix
  std::int64_t rows;      // of a matrix
  std::int64_t all_rows;  // of all matrices
  std::int64_t all_columns;

  explicit Shape(const std::vector<std::int64_t>& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    factored = shape.size() > 1;
    columns = shape.empty() ? 1 : shape.back();
    rows = factored ? shape[shape.size() - 2] : 1;
    all_rows = elements / columns;
    all_columns = elements / rows;
  }
};

std::vector<RowBlock> blocks_of(const PieceInfo& piece, const Shape& shape) {
  return row_blocks(piece, shape.columns, shape.rows);
}

class Adafactor final : public Optimizer {
 public:
  Adafactor(PluginContext& /*context*/, const AdafactorOptions& options) : options_(options) {
    if (options.eps.size() != 2)
      throw UserError("optimizer adafactor: eps must be two numbers of at least 0, e.g. [1e-7, 0.001]");
  }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    const Shape shape(piece.shape);
    if (!shape.factored) return {{"variance"}};
    return {{"row_var", at::kFloat, shape.all_rows}, {"col_var", at::kFloat, shape.all_columns}};
  }

  int rounds() const override { return 2; }

  std::int64_t sums(const PieceInfo& piece, int round) const override {
    const Shape shape(piece.shape);
    if (round == 1) return 2;  // of u^2, of p^2
    return shape.factored ? shape.all_rows + shape.all_columns : 0;
  }

  void measure(const Piece& part, int round, const StepScalars& scalars) override {
    const Shape shape(part.info.shape);
    const at::Tensor mean = round == 1 ? mean_of_rows(part, shape) : at::Tensor();
    for (const RowBlock& block : blocks_of(part.info, shape)) {
      if (round == 0) {
        const at::Tensor squares = gradient(part, block, scalars).square();
        part.sums.narrow(0, block.row, block.rows).add_(squares.sum(1));
        columns_of(part.sums.narrow(0, shape.all_rows, shape.all_columns), block, shape).add_(squares.sum(0));
      } else {
        part.sums.select(0, 0).add_(update(part, block, shape, mean, scalars).square_().sum(at::kDouble));
        part.sums.select(0, 1).add_(block.of(part.master).to(at::kFloat).square().sum(at::kDouble));
      }
    }
  }

  void step(std::span<Piece* const> pieces, int round, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) return;  // in place: a dry run has nothing to count
      if (round == 0)
        take_moments(*piece, scalars);
      else
        take_update(*piece, scalars);
    }
  }

 private:
  static at::Tensor gradient(const Piece& piece, const RowBlock& block, const StepScalars& scalars) {
    return block.of(piece.gradient).to(at::kFloat) * scalars.gradient_factor;
  }

  static at::Tensor columns_of(const at::Tensor& columns, const RowBlock& block, const Shape& shape) {
    return columns.narrow(0, block.row / shape.rows * shape.columns + block.column, block.columns);
  }

  // [matrices]; undefined for a vector.
  at::Tensor mean_of_rows(const Piece& piece, const Shape& shape) const {
    if (!shape.factored) return {};
    return piece.state[0].view({-1, shape.rows}).mean(1).clamp_min(options_.eps[0]);
  }

  at::Tensor update(const Piece& piece, const RowBlock& block, const Shape& shape, const at::Tensor& mean,
                    const StepScalars& scalars) const {
    at::Tensor v;
    if (shape.factored) {
      const at::Tensor rows = piece.state[0].narrow(0, block.row, block.rows).unsqueeze(1);
      v = rows / mean.select(0, block.row / shape.rows) * columns_of(piece.state[1], block, shape);
    } else {
      v = block.of(piece.state[0]).clone();
    }
    return v.clamp_min_(options_.eps[0] * options_.eps[0]).rsqrt_().mul_(gradient(piece, block, scalars));
  }

  void take_moments(Piece& piece, const StepScalars& scalars) const {
    const Shape shape(piece.info.shape);
    const double fresh = std::pow(static_cast<double>(scalars.updates + 1), options_.beta2_decay);
    if (shape.factored) {
      const at::Tensor rows = piece.sums.narrow(0, 0, shape.all_rows) / static_cast<double>(shape.columns);
      const at::Tensor columns =
          piece.sums.narrow(0, shape.all_rows, shape.all_columns) / static_cast<double>(shape.rows);
      write_applied(piece.state[0], piece.state[0].lerp(rows.to(at::kFloat), fresh), scalars);
      write_applied(piece.state[1], piece.state[1].lerp(columns.to(at::kFloat), fresh), scalars);
      return;
    }
    for (const RowBlock& block : blocks_of(piece.info, shape)) {
      const at::Tensor v = block.of(piece.state[0]);
      write_applied(v, v.lerp(gradient(piece, block, scalars).square_(), fresh), scalars);
    }
  }

  void take_update(Piece& piece, const StepScalars& scalars) const {
    const Shape shape(piece.info.shape);
    const auto elements = static_cast<double>(shape.all_rows * shape.columns);
    const double rate = scalars.learning_rate * piece.learning_rate_factor;
    const double decay = 1.0 - rate * piece.weight_decay.value_or(options_.weight_decay);
    const double step_size = std::min(rate, 1.0 / std::sqrt(static_cast<double>(scalars.updates + 1)));
    const at::Tensor rms = (piece.sums / elements).sqrt();  // of u, of p
    const at::Tensor factor =
        (rms.select(0, 1).clamp_min(options_.eps[1]) / (rms.select(0, 0) / options_.d).clamp_min(1.0) * step_size)
            .to(at::kFloat);
    const at::Tensor mean = mean_of_rows(piece, shape);
    for (const RowBlock& block : blocks_of(piece.info, shape)) {
      const at::Tensor master = block.of(piece.master);
      const at::Tensor p =
          master.to(at::kFloat).mul(decay).sub_(update(piece, block, shape, mean, scalars).mul_(factor));
      write_weights(piece, block.offset, p, scalars);
    }
  }

  AdafactorOptions options_;
};

}  // namespace

STRATA_PLUGIN(Adafactor, AdafactorOptions, ADAFACTOR_OPTIONS)
