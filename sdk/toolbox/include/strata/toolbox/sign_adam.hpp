// Adam of DeepSpeed's sign-compressing optimizers, without bias correction:
//
//   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2;  p -= lr (m / (sqrt(v) + epsilon) + weight_decay p)
#pragma once
#include <strata/toolbox/element_step.hpp>

#include <array>
#include <span>

namespace strata::toolbox {

struct SignAdamStep {
  float rest1, beta2, rest2, learning_rate, epsilon, weight_decay;

  // `options`: betas, epsilon and weight_decay.
  template <class Options>
  SignAdamStep(const Piece& piece, const StepScalars& scalars, const Options& options)
      : rest1(static_cast<float>(1.0 - options.betas[0])),
        beta2(static_cast<float>(options.betas[1])),
        rest2(static_cast<float>(1.0 - options.betas[1])),
        learning_rate(static_cast<float>(scalars.learning_rate * piece.learning_rate_factor)),
        epsilon(static_cast<float>(options.epsilon)),
        weight_decay(static_cast<float>(piece.weight_decay.value_or(options.weight_decay))) {}

  template <typename Number>
  Number update(const Number& p, const Number& m, const Number& v) const {
    return m / (sqrt(v) + epsilon) + weight_decay * p;
  }
  template <typename Number>
  Number moved(const Number& p, const Number& m, const Number& v) const {
    return p - learning_rate * update(p, m, v);
  }
};

// Step while gradients are summed. The state begins with m and v.
struct SignAdamWarmUp : SignAdamStep {
  static constexpr std::size_t states = 2;
  using SignAdamStep::SignAdamStep;

  template <typename Number>
  void operator()(Number& p, const Number& g, std::array<Number, states>& state) const {
    auto& [m, v] = state;
    m = m + rest1 * (g - m);
    v = beta2 * v + rest2 * g * g;
    p = moved(p, m, v);
  }
};

void sign_adam_warm_up_elements(const ElementTile& tile, float gradient_factor, const SignAdamWarmUp& formula);
// Implements Optimizer::step of the warm-up. `options`: betas, epsilon and weight_decay.
template <class Options>
void sign_adam_warm_up(std::span<Piece* const> pieces, const StepScalars& scalars, const Options& options) {
  element_step<SignAdamWarmUp>(
      pieces, scalars, [&](const Piece& piece) { return SignAdamWarmUp(piece, scalars, options); },
      sign_adam_warm_up_elements);
}

// Returns this rank's own gradient in fp32.
inline at::Tensor own_gradient(const Piece& piece, const StepScalars& scalars) {
  return piece.gradient.to(at::kFloat) * scalars.gradient_factor.to(piece.gradient.device());
}

}  // namespace strata::toolbox
