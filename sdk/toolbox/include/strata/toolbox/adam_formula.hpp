// Adam (Kingma and Ba, arXiv:1412.6980, algorithm 1) and AdamW (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2)
// as torch.optim computes them in fp32, for element_step. With t = updates + 1:
//
//   decoupled: p *= 1 - lr weight_decay;  otherwise: g += weight_decay p
//   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
#pragma once
#include <strata/error.hpp>
#include <strata/toolbox/element_step.hpp>

#include <string>
#include <vector>

namespace strata {

#define STRATA_EPSILON_OPTION(OPTION) \
  OPTION(number, epsilon, 1e-8, "min=0", "", "Constant added to the square root of the second moment.")
#define STRATA_MOMENT_OPTIONS(OPTION)                                 \
  OPTION(numbers, betas, "[0.9, 0.999]", "min=0,max=1", "",           \
         "Decay rates of the first and second moment; both below 1.") \
  STRATA_EPSILON_OPTION(OPTION)
#define STRATA_DECAY_OPTION(OPTION, default_value)         \
  OPTION(number, weight_decay, default_value, "min=0", "", \
         "Decoupled weight decay: each step multiplies parameters by 1 - learning rate x weight_decay.")

struct AdamHyperparameters {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;
};

// Throws UserError unless there are two betas, each at least 0 and below 1.
inline void check_betas(const std::string& optimizer, const std::vector<double>& betas,
                        const std::string& option = "betas") {
  if (betas.size() != 2 || betas[0] >= 1.0 || betas[1] >= 1.0)
    throw UserError("optimizer {}: {} must be two numbers from 0 to below 1, e.g. [0.9, 0.999]", optimizer, option);
}

// Reads options with betas, epsilon and weight_decay. Throws as check_betas does.
template <typename Options>
AdamHyperparameters adam_hyperparameters(const std::string& optimizer, const Options& options) {
  check_betas(optimizer, options.betas);
  return {options.betas[0], options.betas[1], options.epsilon, options.weight_decay};
}

// Factors of one update of a piece.
struct AdamFactors {
  double beta1;  // momentum, which the run's schedule may replace at every update
  double learning_rate;
  double weight_decay;
  double decay;              // 1 - lr weight_decay
  double first_correction;   // 1 / (1 - beta1^t)
  double second_correction;  // 1 / sqrt(1 - beta2^t)
  double step_size;          // lr x first_correction

  AdamFactors(const Piece& piece, const StepScalars& scalars, const AdamHyperparameters& h) {
    beta1 = scalars.momentum.value_or(h.beta1);
    learning_rate = scalars.learning_rate * piece.learning_rate_factor;
    weight_decay = piece.weight_decay.value_or(h.weight_decay);
    const auto t = static_cast<double>(scalars.updates + 1);
    decay = 1.0 - learning_rate * weight_decay;
    first_correction = 1.0 / (1.0 - std::pow(beta1, t));
    second_correction = 1.0 / std::sqrt(1.0 - std::pow(h.beta2, t));
    step_size = learning_rate / (1.0 - std::pow(beta1, t));
  }
};

struct AdamMoments {
  static constexpr std::size_t states = 2;
  float rest1, beta2, rest2;

  AdamMoments(const AdamFactors& factors, double second_beta)
      : rest1(static_cast<float>(1.0 - factors.beta1)),
        beta2(static_cast<float>(second_beta)),
        rest2(static_cast<float>(1.0 - second_beta)) {}

  template <typename Number>
  void operator()(const Number& g, std::array<Number, states>& state) const {
    auto& [m, v] = state;
    m = m + rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
  }
};

template <bool decoupled>
struct AdamFormula {
  static constexpr std::size_t states = 2;
  AdamMoments moments;
  float decay, step_size, second_correction, epsilon;

  AdamFormula(const Piece& piece, const StepScalars& scalars, const AdamHyperparameters& h)
      : AdamFormula(AdamFactors(piece, scalars, h), h) {}
  AdamFormula(const AdamFactors& factors, const AdamHyperparameters& h)
      : moments(factors, h.beta2),
        decay(static_cast<float>(decoupled ? factors.decay : factors.weight_decay)),
        step_size(static_cast<float>(factors.step_size)),
        second_correction(static_cast<float>(factors.second_correction)),
        epsilon(static_cast<float>(h.epsilon)) {}

  template <typename Number>
  void operator()(Number& p, const Number& g, std::array<Number, states>& state) const {
    if constexpr (decoupled) {
      moments(g, state);
      p = p * decay;
    } else {
      moments(Number(g + decay * p), state);
    }
    const auto& [m, v] = state;
    p = p - step_size * (m / (sqrt(v) * second_correction + epsilon));
  }
};

}  // namespace strata
