// Optimizer schedule_free: Schedule-Free AdamW (Defazio et al., arXiv:2405.15682), as AdamWScheduleFree of the authors'
// package. z is stepped, x is the average of the z, and layers train at y between both. With g = gradient x
// gradient_factor, k updates made before and lr_max the largest learning rate so far:
//
//   v = beta2 v + (1 - beta2) g^2
//   z = z - lr (g / (sqrt(v / (1 - beta2^(k + 1))) + epsilon) + weight_decay y)
//   w = (k + 1)^r lr_max^weight_lr_power;  W = W + w;  x = x + w / W (z - x)
//   y = beta1 x + (1 - beta1) z
//
// The package keeps y and z, and makes x for an evaluation. Here the master is x, so that all that reads master weights
// sees the average, and the state is z - x, which is zero before the first update. That gives y without rounding
// of its own; the package's y is x + (1 - beta1) (z - x) too.
#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>
#include <strata/toolbox/random_rounding.hpp>

namespace {

using namespace strata;

#define SCHEDULE_FREE_OPTIONS(OPTION)                                                                             \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "",                                                       \
         "Two numbers below 1. First: place of the weights at which gradients are computed, between the stepped " \
         "weights (0) and their average (1). Second: decay rate of the second moment.")                           \
  STRATA_EPSILON_OPTION(OPTION)                                                                                   \
  OPTION(number, weight_decay, 0.0, "min=0", "",                                                                  \
         "Decoupled weight decay: each step subtracts learning rate x weight_decay x the weights at which the "   \
         "gradient was computed.")                                                                                \
  OPTION(number, r, 0.0, "min=0", "",                                                                             \
         "Exponent of the averaging: update t, from 1, has the weight t^r x (largest learning rate so "           \
         "far)^weight_lr_power.")                                                                                 \
  OPTION(number, weight_lr_power, 2.0, "min=0", "", "Exponent of the learning rate in the averaging; see r.")
STRATA_OPTIONS(ScheduleFreeOptions, SCHEDULE_FREE_OPTIONS)

// `Share`: float, or a tensor [] where the host does not know it.
template <typename Share>
struct Formula {
  static constexpr std::size_t states = 3;  // v, z - x, and the parameter, which is y
  float rate, weight_decay, beta2, rest2, second_correction, epsilon, rest1;
  Share share;  // w / W

  template <typename Number>
  void operator()(Number& x, const Number& g, std::array<Number, states>& state) const {
    auto& [v, ahead, y] = state;
    v = beta2 * v + rest2 * g * g;
    const Number before = x + rest1 * ahead;
    ahead = ahead - rate * (g / (sqrt(v) * second_correction + epsilon) + weight_decay * before);
    const Number taken = share * ahead;
    x = x + taken;
    ahead = ahead - taken;
    y = x + rest1 * ahead;
  }
};

STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const Formula<float>& formula) {
  update_elements(tile, gradient_factor, formula);
}

class ScheduleFree final : public Optimizer {
 public:
  ScheduleFree(PluginContext& /*context*/, const ScheduleFreeOptions& options) : options_(options) {
    hyperparameters_ = adam_hyperparameters("schedule_free", options);
  }

  // Of a parameter, not of the run: learning rates may have a factor by parameter.
  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override {
    return {{"exp_avg_sq"}, {"z_minus_x"}, {"lr_max_weight_sum", at::kDouble, 2}};
  }

  bool trains_elsewhere() const override { return true; }

  void write_trained(const Piece& piece) const override {
    if (!piece.master.is_meta()) piece.parameter.copy_(trained(piece));
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece> in_host_memory;
    std::vector<Formula<float>> formulas;
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) continue;  // in place: a dry run has nothing to count
      const at::Tensor weights = weights_after(*piece, scalars);
      const at::Tensor share = at::where(weights[1] > 0, weights[2] / weights[1], 0.0).to(at::kFloat);
      Piece elements = *piece;
      elements.state = {piece->state[0], piece->state[1], piece->parameter};
      elements.parameter = at::Tensor();
      if (takes_element_pass(elements)) {
        formulas.push_back(formula_of(*piece, scalars, share.item<float>()));
        in_host_memory.push_back(std::move(elements));
      } else {
        tensor_step(elements, scalars, formula_of(*piece, scalars, share));
      }
      write_applied(piece->state[2], weights.narrow(0, 0, 2), scalars);
    }
    std::vector<Piece*> of_pass;
    for (Piece& piece : in_host_memory) of_pass.push_back(&piece);
    if (!of_pass.empty()) host_step(of_pass, scalars, formulas, update);
    for (const Piece* const piece : pieces)  // x was rounded behind y
      if (RandomRounding::rounds(piece->master) && !piece->master.is_meta())
        write_applied(piece->parameter, trained(*piece), scalars);
  }

 private:
  // lr_max, W and w of this update: fp64 [3].
  at::Tensor weights_after(const Piece& piece, const StepScalars& scalars) const {
    const double rate = scalars.learning_rate * piece.learning_rate_factor;
    const at::Tensor largest = piece.state[2][0].clamp_min(rate);
    const at::Tensor weight =
        at::pow(largest, options_.weight_lr_power) * std::pow(static_cast<double>(scalars.updates + 1), options_.r);
    return at::stack({largest, piece.state[2][1] + weight, weight});
  }

  template <typename Share>
  Formula<Share> formula_of(const Piece& piece, const StepScalars& scalars, const Share& share) const {
    const AdamFactors factors(piece, scalars, hyperparameters_);
    return {static_cast<float>(factors.learning_rate),
            static_cast<float>(factors.weight_decay),
            static_cast<float>(hyperparameters_.beta2),
            static_cast<float>(1.0 - hyperparameters_.beta2),
            static_cast<float>(factors.second_correction),
            static_cast<float>(hyperparameters_.epsilon),
            rest1(),
            share};
  }

  float rest1() const { return static_cast<float>(1.0 - hyperparameters_.beta1); }

  // y in fp32, as the formula has it.
  at::Tensor trained(const Piece& piece) const { return piece.master.to(at::kFloat) + rest1() * piece.state[1]; }

  ScheduleFreeOptions options_;
  AdamHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(ScheduleFree, ScheduleFreeOptions, SCHEDULE_FREE_OPTIONS)
