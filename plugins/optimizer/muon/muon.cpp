// Optimizer muon (Jordan et al., kellerjordan.github.io/posts/muon): each matrix of a hidden layer moves by its
// momentum made orthogonal. All other parameters - the embedding, the head, vectors - are updated by AdamW.
//
// A matrix is a unit: it is updated whole, by one rank where a partitioner shards (zero1 and up), by every rank where
// each keeps all (ddp, which sends as many bytes as zero1). q, k and v in one weight are three matrices.
#include <ATen/TensorOperators.h>
#include <fnmatch.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "adamw/adamw_step.hpp"
#include "orthogonalize.hpp"

namespace {

using namespace strata;

#define MUON_OPTIONS(OPTION)                                                                                          \
  OPTION(number, momentum, 0.95, "min=0,max=1", "", "Decay of the momentum of matrices; below 1.")                    \
  OPTION(boolean, nesterov, true, "", "", "Nesterov momentum.")                                                       \
  OPTION(integer, steps, 5, "min=1,max=20", "", "Newton-Schulz steps.")                                               \
  OPTION(text, coefficients, "quintic", "one_of=quintic|polar_express", "",                                           \
         "Of the Newton-Schulz steps: quintic has the same in each, polar_express others in each of the first five.") \
  OPTION(text, scale, "original", "one_of=original|moonlight", "",                                                    \
         "What multiplies the update of a matrix: original sqrt(max(1, rows/columns)); moonlight "                    \
         "0.2 sqrt(max(rows, columns)), with which AdamW's learning rates suit.")                                     \
  OPTION(number, weight_decay, 0.1, "min=0", "",                                                                      \
         "Decoupled weight decay of all parameters: each step multiplies them by 1 - learning rate x this.")          \
  OPTION(text, matrices, "", "", "",                                                                                  \
         "Names of the matrices to make orthogonal, with * and ?, separated by spaces; empty: the weights of "        \
         "products, which the model names, but for its head.")                                                        \
  OPTION(numbers, adamw_betas, "[0.9, 0.999]", "min=0,max=1", "", "AdamW's betas for all other parameters.")          \
  OPTION(number, adamw_epsilon, 1e-8, "min=0", "", "AdamW's epsilon for all other parameters.")                       \
  OPTION(number, adamw_rate, 1, "min=0", "", "AdamW's learning rate, as a multiple of that of matrices.")
STRATA_OPTIONS(MuonOptions, MUON_OPTIONS)

// The matrices of a piece, which holds whole ones: in `turns` places so many rows of each, one after the other.
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

class Muon final : public Optimizer {
 public:
  Muon(PluginContext& /*context*/, const MuonOptions& options) : options_(options) {
    if (options.momentum >= 1.0) throw UserError("optimizer muon: momentum must be below 1, e.g. 0.95");
    check_betas("muon", options.adamw_betas, "adamw_betas");
    adamw_ = {options.adamw_betas[0], options.adamw_betas[1], options.adamw_epsilon, options.weight_decay};
    std::istringstream patterns(options.matrices);
    for (std::string pattern; patterns >> pattern;) patterns_.push_back(pattern);
  }

  std::int64_t unit(const PieceInfo& piece) const override {
    if (!is_orthogonal(piece)) return 1;
    const Matrices all = matrices_of(piece);
    return all.rows * all.columns * (all.turns == 1 ? 1 : all.turns * all.matrices);
  }

  std::vector<StateTensor> state(const PieceInfo& piece) const override {
    if (is_orthogonal(piece)) return {{"momentum_buffer"}};
    return {{"exp_avg"}, {"exp_avg_sq"}};
  }

  bool takes_momentum() const override { return true; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece> others;
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) continue;  // a dry run counts no working memory
      if (is_orthogonal(piece->info))
        update_matrices(*piece, scalars);
      else
        others.push_back(*piece);
    }
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

  void update_matrices(Piece& piece, const StepScalars& scalars) const {
    Matrices held = matrices_of(piece.info);
    if (held.turns == 1) held.matrices = (piece.info.end - piece.info.begin) / (held.rows * held.columns);
    if (scalars.apply.is_cpu() && scalars.apply.item<float>() == 0.0F) return;  // the host knows it
    const at::Tensor weights = piece.master.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    for (std::int64_t number = 0; number < held.matrices; ++number)
      update_matrix(piece, held, number, scalars, held.of(weights, number));
    write_weights(piece, 0, weights, scalars);
  }

  // torch.optim.Muon's, with gradient x gradient_factor for the gradient. Updates `weights`, which are fp32.
  void update_matrix(Piece& piece, const Matrices& held, std::int64_t number, const StepScalars& scalars,
                     at::Tensor weights) const {
    const double momentum = scalars.momentum.value_or(options_.momentum);
    const double learning_rate = scalars.learning_rate * piece.learning_rate_factor;
    const auto rows = static_cast<double>(held.turns * held.rows), columns = static_cast<double>(held.columns);
    const double scale = options_.scale == "original" ? std::sqrt(std::max(1.0, rows / columns))
                                                      : 0.2 * std::sqrt(std::max(rows, columns));
    const at::Device device = piece.master.device();
    const at::Tensor buffer = held.of(piece.state[0], number);
    const at::Tensor gradient = held.of(piece.gradient, number).to(at::kFloat) * scalars.gradient_factor.to(device);
    const at::Tensor averaged = buffer.to(at::kFloat).lerp(gradient, 1.0 - momentum);
    const at::Tensor direction = options_.nesterov ? gradient.lerp(averaged, momentum) : averaged;
    const at::Tensor orthogonal = muon::orthogonalize(direction.reshape({-1, held.columns}), options_.steps,
                                                      coefficients(), device.is_cpu() ? at::kFloat : at::kBFloat16)
                                      .reshape(direction.sizes());
    const double decay = 1.0 - learning_rate * piece.weight_decay.value_or(options_.weight_decay);
    weights.mul_(decay).sub_(orthogonal, learning_rate * scale);
    write_applied(buffer, averaged, scalars);
  }

  muon::Coefficients coefficients() const {
    return options_.coefficients == "quintic" ? muon::Coefficients::Quintic : muon::Coefficients::PolarExpress;
  }

  MuonOptions options_;
  adamw::AdamwHyperparameters adamw_;
  std::vector<std::string> patterns_;
};

}  // namespace

STRATA_PLUGIN(Muon, MuonOptions, MUON_OPTIONS)
