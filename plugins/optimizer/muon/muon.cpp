// Optimizer muon (Jordan et al., kellerjordan.github.io/posts/muon): each matrix of a hidden layer moves by its
// momentum made orthogonal. All other parameters - the embedding, the head, vectors - are updated by AdamW.
//
// A matrix is a unit: it is updated whole, by one rank where a partitioner shards (zero1 and up), by every rank where
// each keeps all (ddp, which sends as many bytes as zero1). q, k and v in one weight are three matrices. Where
// tensor-parallel ranks have parts of a matrix, it is put together for its update (shared_matrices.hpp).
#include <ATen/TensorOperators.h>
#include <fnmatch.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/tensor_units.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "adamw/adamw_step.hpp"
#include "orthogonalize.hpp"
#include "shared_matrices.hpp"

namespace {

using namespace strata;

#define MUON_COEFFICIENTS "quintic|polar_express"

#define MUON_OPTIONS(OPTION)                                                                                           \
  OPTION(number, momentum, 0.95, "min=0,max=1", "", "Decay rate of the momentum of matrices; below 1.")                \
  OPTION(boolean, nesterov, true, "", "", "Nesterov momentum.")                                                        \
  OPTION(integer, steps, 5, "min=1,max=20", "", "Number of Newton-Schulz iterations.")                                 \
  OPTION(text, coefficients, "quintic", "one_of=" MUON_COEFFICIENTS, "",                                               \
         "Coefficients of the Newton-Schulz iterations. quintic: the same in each; polar_express: different ones in "  \
         "each of the first five.")                                                                                    \
  OPTION(text, scale, "original", "one_of=original|moonlight", "",                                                     \
         "Factor of a matrix update. original: sqrt(max(1, rows/columns)); moonlight: 0.2 sqrt(max(rows, columns)), "  \
         "which suits the learning rates of AdamW.")                                                                   \
  OPTION(number, weight_decay, 0.1, "min=0", "",                                                                       \
         "Decoupled weight decay of all parameters: each step multiplies them by 1 - learning rate x weight_decay.")   \
  OPTION(text, matrices, "", "", "",                                                                                   \
         "Patterns (* and ?), separated by spaces, for the names of the matrices to orthogonalize; empty: the matmul " \
         "weights that the model declares, except the head.")                                                          \
  OPTION(numbers, adamw_betas, "[0.9, 0.999]", "min=0,max=1", "",                                                      \
         "Betas of AdamW, which updates all other parameters.")                                                        \
  OPTION(number, adamw_epsilon, 1e-8, "min=0", "", "Epsilon of AdamW, which updates all other parameters.")            \
  OPTION(number, adamw_rate, 1, "min=0", "", "Learning rate of AdamW, as a multiple of that of the matrices.")
STRATA_OPTIONS(MuonOptions, MUON_OPTIONS)

// The whole matrices of a piece: in each of `turns` places, `rows` rows of every matrix, one matrix after the other.
struct Matrices {
  std::int64_t turns, matrices, rows, columns;

  // One matrix of a tensor like the piece: [turns, rows, columns].
  at::Tensor of(const at::Tensor& values, std::int64_t number) const {
    return values.view({turns, matrices, rows, columns}).select(1, number);
  }
};

// Those of the whole parameter.
Matrices matrices_of(const PieceInfo& piece) {
  const std::int64_t all = piece.shape[0], columns = piece.shape[1];
  if (piece.stacked.rows == 0) return {1, 1, all, columns};
  return {all / (piece.stacked.matrices * piece.stacked.rows), piece.stacked.matrices, piece.stacked.rows, columns};
}

// How many elements are updated together: one of the matrices, or all of them where their rows take turns.
std::int64_t unit_of(const PieceInfo& piece) {
  const Matrices all = matrices_of(piece);
  return all.rows * all.columns * (all.turns == 1 ? 1 : all.turns * all.matrices);
}

// Whether the piece is of a tensor-parallel rank's part that holds parts of matrices, and no whole ones.
bool is_shared(const PieceInfo& piece) {
  return piece.places.length % unit_of(piece) != 0;
}

// Whether those are some columns of each; else some rows.
bool has_columns(const PieceInfo& piece) {
  return piece.places.distance == piece.shape[1];
}

class Muon final : public Optimizer, public TensorUnits {
 public:
  Muon(PluginContext& /*context*/, const MuonOptions& options) : options_(options) {
    if (options.momentum >= 1.0) throw UserError("optimizer muon: momentum must be below 1, e.g. 0.95");
    check_betas("muon", options.adamw_betas, "adamw_betas");
    adamw_ = {options.adamw_betas[0], options.adamw_betas[1], options.adamw_epsilon, options.weight_decay};
    std::istringstream patterns(options.matrices);
    for (std::string pattern; patterns >> pattern;) patterns_.push_back(pattern);
  }

  std::int64_t unit(const PieceInfo& piece) const override { return is_orthogonal(piece) ? unit_of(piece) : 1; }

  void connect_tensor(Group& group) override { group_ = &group; }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (is_orthogonal(piece)) return {{"momentum_buffer"}};
    return {{"exp_avg"}, {"exp_avg_sq"}};
  }

  bool takes_momentum() const override { return true; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece> others;
    std::vector<Piece*> shared;
    for (Piece* const piece : pieces) {
      if (is_orthogonal(piece->info) && is_shared(piece->info))
        shared.push_back(piece);
      else if (piece->master.is_meta())
        continue;  // a dry run counts no working memory
      else if (is_orthogonal(piece->info))
        update_matrices(*piece, scalars);
      else
        others.push_back(*piece);
    }
    update_shared(shared, scalars);
    std::vector<Piece*> by_adamw;
    for (Piece& piece : others) {
      piece.learning_rate_factor *= options_.adamw_rate;
      by_adamw.push_back(&piece);
    }
    adamw::step(by_adamw, scalars, adamw_);
  }

 private:
  bool is_orthogonal(const PieceInfo& piece) const {
    if (piece.shape.size() != 2) return false;
    if (patterns_.empty()) return piece.linear_only;
    return std::ranges::any_of(patterns_, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), piece.parameter.c_str(), 0) == 0;
    });
  }

  // The matrices, or parts of such, of a piece.
  Matrices held_by(const PieceInfo& piece) const {
    Matrices held = matrices_of(piece);
    if (is_shared(piece)) {
      strata_check(group_ != nullptr, "parts of matrices come with the ranks that have the others");
      std::int64_t& cut = has_columns(piece) ? held.columns : held.turns > 1 ? held.turns : held.rows;
      cut /= group_->size();
    }
    if (held.turns == 1) held.matrices = (piece.end - piece.begin) / (held.rows * held.columns);
    return held;
  }

  bool is_left(const StepScalars& scalars) const {  // and the host knows it
    return scalars.apply.is_cpu() && scalars.apply.item<float>() == 0.0F;
  }

  void update_matrices(Piece& piece, const StepScalars& scalars) const {
    if (is_left(scalars)) return;
    const Matrices held = held_by(piece.info);
    const at::Tensor weights = piece.master.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    for (std::int64_t number = 0; number < held.matrices; ++number) {
      const Direction direction = direction_of(piece, held, number, scalars);
      move(piece, held.of(weights, number), orthogonal(direction.update), scalars);
      write_applied(held.of(piece.state[0], number), direction.averaged, scalars);
    }
    write_weights(piece, 0, weights, scalars);
  }

  // The same, where each matrix is put together from the parts of tensor-parallel ranks. All of them skip alike.
  void update_shared(std::span<Piece* const> pieces, const StepScalars& scalars) const {
    if (pieces.empty() || (!pieces.front()->master.is_meta() && is_left(scalars))) return;
    std::vector<Direction> directions;
    std::vector<muon::SharedMatrix> matrices;
    for (const Piece* const piece : pieces) {
      const Matrices held = held_by(piece->info);
      for (std::int64_t number = 0; number < held.matrices; ++number) {
        directions.push_back(direction_of(*piece, held, number, scalars));
        // Memory of its own: without Nesterov the update is the momentum, and the part becomes what is made of it.
        matrices.push_back({directions.back().update.clone(at::MemoryFormat::Contiguous), has_columns(piece->info)});
      }
    }
    muon::orthogonalize_shared(*group_, matrices, [&](const at::Tensor& whole) { return orthogonal(whole); });
    if (pieces.front()->master.is_meta()) return;  // a dry run counts what is sent, and no working memory
    std::size_t next = 0;
    for (Piece* const piece : pieces) {
      const Matrices held = held_by(piece->info);
      const at::Tensor weights = piece->master.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      for (std::int64_t number = 0; number < held.matrices; ++number, ++next) {
        move(*piece, held.of(weights, number), matrices[next].part, scalars);
        write_applied(held.of(piece->state[0], number), directions[next].averaged, scalars);
      }
      write_weights(*piece, 0, weights, scalars);
    }
  }

  struct Direction {
    at::Tensor averaged;  // the momentum after this update, as it lies in the piece
    at::Tensor update;    // what is made orthogonal, [rows, columns]
  };

  // torch.optim.Muon's, with gradient x gradient_factor for the gradient.
  Direction direction_of(const Piece& piece, const Matrices& held, std::int64_t number,
                         const StepScalars& scalars) const {
    const double momentum = scalars.momentum.value_or(options_.momentum);
    const at::Tensor gradient =
        held.of(piece.gradient, number).to(at::kFloat) * scalars.gradient_factor.to(piece.master.device());
    const at::Tensor averaged = held.of(piece.state[0], number).to(at::kFloat).lerp(gradient, 1.0 - momentum);
    const at::Tensor direction = options_.nesterov ? gradient.lerp(averaged, momentum) : averaged;
    return {averaged, direction.reshape({-1, held.columns})};
  }

  at::Tensor orthogonal(const at::Tensor& matrix) const {
    return muon::orthogonalize(matrix, options_.steps, coefficients(), matrix.is_cpu() ? at::kFloat : at::kBFloat16);
  }

  // Steps `weights`, fp32, of a matrix or a part of one.
  void move(const Piece& piece, const at::Tensor& weights, const at::Tensor& by, const StepScalars& scalars) const {
    const Matrices whole = matrices_of(piece.info);
    const auto rows = static_cast<double>(whole.turns * whole.rows), columns = static_cast<double>(whole.columns);
    const double scale = options_.scale == "original" ? std::sqrt(std::max(1.0, rows / columns))
                                                      : 0.2 * std::sqrt(std::max(rows, columns));
    const double learning_rate = scalars.learning_rate * piece.learning_rate_factor;
    const double decay = 1.0 - learning_rate * piece.weight_decay.value_or(options_.weight_decay);
    weights.mul_(decay).sub_(by.reshape(weights.sizes()), learning_rate * scale);
  }

  muon::Coefficients coefficients() const {
    return choice<muon::Coefficients>(MUON_COEFFICIENTS, options_.coefficients);
  }

  MuonOptions options_;
  adamw::AdamwHyperparameters adamw_;
  std::vector<std::string> patterns_;
  Group* group_ = nullptr;  // the tensor-parallel ranks
};

}  // namespace

STRATA_PLUGIN(Muon, MuonOptions, MUON_OPTIONS)
