// Optimizer lamb: LAMB (You et al., arXiv:1904.00962, algorithm 2). With g = gradient x gradient_factor and
// t = updates + 1:
//
//   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay p
//   p -= lr u x clamp(|p| / |u|, min_coeff, max_coeff),  the ratio 1 where either norm is 0
//
// Norms are over whole parameters; each, also a bias, has its own ratio. The bounds of the ratio and their
// defaults are those of DeepSpeed's FusedLamb; the paper's phi is the identity. NVIDIA Apex's FusedLAMB has no bounds:
// set them to 0 and 1e30. `bias_correction: moments` is the paper's and Apex's, which is in u; `step_size` is
// FusedLamb's, where u has m and v uncorrected and lr is multiplied by sqrt(1 - beta2^t) / (1 - beta1^t).
#include <ATen/ops/where.h>
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>

namespace {

using namespace strata;

#define LAMB_OPTIONS(OPTION)                                                                                      \
  STRATA_MOMENT_OPTIONS(OPTION)                                                                                   \
  OPTION(number, weight_decay, 0.0, "min=0", "",                                                                  \
         "Weight decay: weight_decay x parameter is added to the update before its norm is taken.")               \
  OPTION(text, bias_correction, "moments", "one_of=moments|step_size|none", "",                                   \
         "Correction for moments that start at zero. moments: corrects the moments, as in the paper; step_size: " \
         "corrects the step size, as in DeepSpeed's FusedLamb.")                                                  \
  OPTION(number, min_coeff, 0.01, "min=0", "", "Lower bound of the trust ratio of a parameter.")                  \
  OPTION(number, max_coeff, 10.0, "min=0", "", "Upper bound of the trust ratio of a parameter.")
STRATA_OPTIONS(LambOptions, LAMB_OPTIONS)

struct Update {
  AdamMoments moments;
  float first_correction, second_correction, epsilon, decay;

  // u of the moments that it updates.
  template <typename Number>
  Number operator()(const Number& p, const Number& g, std::array<Number, 2>& state) const {
    moments(g, state);
    const auto& [m, v] = state;
    return first_correction * m / (sqrt(v) * second_correction + epsilon) + decay * p;
  }
};

// Step: lr times the parameter's ratio, a float or a tensor of no dimension.
template <typename Step>
struct Formula {
  static constexpr std::size_t states = 2;
  Update update;
  Step step;

  template <typename Number>
  void operator()(Number& p, const Number& g, std::array<Number, states>& state) const {
    p = p - step * update(p, g, state);
  }
};

STRATA_UPDATE_CLONES [[gnu::flatten]] void update_tile(const ElementTile& tile, float gradient_factor,
                                                       const Formula<float>& formula) {
  update_elements(tile, gradient_factor, formula);
}

// u of a tile, which changes nothing.
STRATA_UPDATE_CLONES [[gnu::flatten]] void update_of(const ElementTile& tile, float gradient_factor,
                                                     const Update& given, float* __restrict__ u) {
  const Update update = given;
  const float *const p = tile.master, *const g = tile.gradient, *const m = tile.state[0], *const v = tile.state[1];
  for (std::int64_t i = 0; i < tile.count; ++i) {
    std::array<float, 2> state{m[i], v[i]};
    u[i] = update(p[i], g[i] * gradient_factor, state);
  }
}

class Lamb final : public Optimizer {
 public:
  Lamb(PluginContext& /*context*/, const LambOptions& options)
      : options_(options), hyperparameters_{0.0, 0.0, options.epsilon, options.weight_decay} {
    check_betas("lamb", options.betas);
    hyperparameters_.beta1 = options.betas[0], hyperparameters_.beta2 = options.betas[1];
    if (options.min_coeff > options.max_coeff)
      throw UserError(
          "optimizer lamb: min_coeff is {}, above max_coeff, {}; give a lower bound that is not above the upper one",
          options.min_coeff, options.max_coeff);
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"exp_avg"}, {"exp_avg_sq"}}; }

  bool takes_momentum() const override { return true; }

  std::int64_t sums(const PieceInfo& /*piece*/, int /*round*/) const override { return 2; }  // of p^2, of u^2

  void measure(const Piece& part, int /*round*/, const StepScalars& scalars) override {
    const Update update = update_of_piece(part, scalars);
    if (takes_element_pass(part)) {
      const float gradient_factor = scalars.gradient_factor.item<float>();
      std::vector<std::array<double, 2>> tiles((part.master.numel() + measured_tile - 1) / measured_tile);
      element_measure(part, [&](const ElementTile& tile) {
        float u[measured_tile];
        update_of(tile, gradient_factor, update, u);
        tiles[static_cast<std::size_t>(tile.begin / measured_tile)] = {sum_of_squares(tile.master, tile.count),
                                                                       sum_of_squares(u, tile.count)};
      });
      std::array<double, 2> sums{};
      for (const std::array<double, 2>& tile : tiles) sums[0] += tile[0], sums[1] += tile[1];
      for (int i = 0; i < 2; ++i) part.sums.select(0, i).add_(sums[i]);
    } else {
      const at::Tensor p = part.master.to(at::kFloat);
      const at::Tensor g = part.gradient.to(at::kFloat) * scalars.gradient_factor.to(p.device());
      std::array<at::Tensor, 2> state{part.state[0].to(at::kFloat), part.state[1].to(at::kFloat)};
      part.sums.select(0, 0).add_(p.square().sum(at::kDouble));
      part.sums.select(0, 1).add_(update(p, g, state).square().sum(at::kDouble));
    }
  }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    std::vector<Piece*> in_host_memory;
    std::vector<Formula<float>> formulas;
    for (Piece* const piece : pieces) {
      if (piece->master.is_meta()) continue;  // in place: a dry run has nothing to count
      const Update update = update_of_piece(*piece, scalars);
      const at::Tensor step = step_of(*piece, scalars);
      if (takes_element_pass(*piece)) {
        in_host_memory.push_back(piece);
        formulas.push_back({update, step.item<float>()});
      } else {
        tensor_step<Formula<at::Tensor>>(*piece, scalars, {update, step});
      }
    }
    if (!in_host_memory.empty()) host_step(in_host_memory, scalars, formulas, update_tile);
  }

 private:
  Update update_of_piece(const Piece& piece, const StepScalars& scalars) const {
    const AdamFactors factors(piece, scalars, hyperparameters_);
    const bool corrects = options_.bias_correction == "moments";
    return {AdamMoments(factors, hyperparameters_.beta2),
            corrects ? static_cast<float>(factors.first_correction) : 1.0F,
            corrects ? static_cast<float>(factors.second_correction) : 1.0F, static_cast<float>(options_.epsilon),
            static_cast<float>(factors.weight_decay)};
  }

  // [], fp32, on the sums' device.
  at::Tensor step_of(const Piece& piece, const StepScalars& scalars) const {
    const AdamFactors factors(piece, scalars, hyperparameters_);
    double rate = factors.learning_rate;
    if (options_.bias_correction == "step_size") rate *= factors.first_correction / factors.second_correction;
    const at::Tensor norms = piece.sums.sqrt();
    const at::Tensor ratio = (norms.select(0, 0) / norms.select(0, 1)).clamp(options_.min_coeff, options_.max_coeff);
    return (at::where((norms != 0).all(), ratio, 1.0) * rate).to(at::kFloat);
  }

  LambOptions options_;
  AdamHyperparameters hyperparameters_;
};

}  // namespace

STRATA_PLUGIN(Lamb, LambOptions, LAMB_OPTIONS)
