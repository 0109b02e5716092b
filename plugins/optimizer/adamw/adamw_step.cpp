#include "adamw_step.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/where.h>
#include <strata/operators.hpp>
#include <strata/toolbox/element_pass.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <cmath>

namespace strata::adamw {
namespace {

// What one step multiplies by.
struct Factors {
  double beta1;              // the run's schedule may give another at every update
  double decay;              // of the parameter
  double step_size;          // lr / (1 - beta1^t)
  double second_correction;  // 1 / sqrt(1 - beta2^t)

  Factors(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& h) {
    beta1 = scalars.momentum.value_or(h.beta1);
    const double learning_rate = scalars.learning_rate * piece.learning_rate_factor;
    const auto t = static_cast<double>(scalars.updates + 1);
    decay = 1.0 - learning_rate * piece.weight_decay.value_or(h.weight_decay);
    step_size = learning_rate / (1.0 - std::pow(beta1, t));
    second_correction = 1.0 / std::sqrt(1.0 - std::pow(h.beta2, t));
  }
};

STRATA_VECTOR_CLONES void update(float* __restrict__ p, const float* __restrict__ gradient, float* __restrict__ m,
                                 float* __restrict__ v, std::int64_t count, const Factors& factors,
                                 float gradient_factor, const AdamwHyperparameters& h) {
  const auto decay = static_cast<float>(factors.decay), step_size = static_cast<float>(factors.step_size);
  const auto correction = static_cast<float>(factors.second_correction), epsilon = static_cast<float>(h.epsilon);
  const auto beta2 = static_cast<float>(h.beta2);
  const auto rest1 = static_cast<float>(1.0 - factors.beta1), rest2 = static_cast<float>(1.0 - h.beta2);
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * gradient_factor;
    m[i] += rest1 * (g - m[i]);
    v[i] = beta2 * v[i] + rest2 * g * g;
    p[i] = p[i] * decay - step_size * (m[i] / (std::sqrt(v[i]) * correction + epsilon));
  }
}

}  // namespace

void adamw_step(std::span<Piece* const> pieces, const StepScalars& scalars,
                const AdamwHyperparameters& hyperparameters) {
  if (scalars.apply.item<float>() == 0.0F) return;
  std::vector<Factors> factors;
  for (const Piece* const piece : pieces) factors.emplace_back(*piece, scalars, hyperparameters);
  const float gradient_factor = scalars.gradient_factor.item<float>();
  element_pass(pieces, [&](std::size_t piece, const ElementTile& tile) {
    update(tile.master, tile.gradient, tile.state[0], tile.state[1], tile.count, factors[piece], gradient_factor,
           hyperparameters);
  });
}

bool takes_operator_step(const Piece& piece) {
  const at::Device device = piece.master.device();
  const auto is_list = [&](const at::Tensor& tensor) { return tensor.device() == device && tensor.is_contiguous(); };
  const auto is_wide = [&](const at::Tensor& tensor) { return is_list(tensor) && tensor.scalar_type() == at::kFloat; };
  const auto is_known = [&](const at::Tensor& tensor) {
    const at::ScalarType dtype = tensor.scalar_type();
    return is_list(tensor) && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
  };
  return is_wide(piece.master) && std::all_of(piece.state.begin(), piece.state.end(), is_wide) &&
         is_known(piece.gradient) && (!piece.parameter.defined() || is_known(piece.parameter)) &&
         operators::available("adamw_step", device);
}

void adamw_operator_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& h) {
  const Factors factors(piece, scalars, h);
  operators::adamw_step(
      piece.master, piece.gradient, piece.parameter.defined() ? std::optional(piece.parameter) : std::nullopt,
      piece.state[0], piece.state[1], scalars.gradient_factor, scalars.apply,
      {factors.decay, factors.step_size, factors.second_correction, factors.beta1, h.beta2, h.epsilon});
}

void adamw_reference_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& h) {
  const Factors factors(piece, scalars, h);
  const at::Device device = piece.master.device();
  const at::Tensor apply = scalars.apply.to(device) != 0;
  const at::Tensor g = piece.gradient.to(at::kFloat) * scalars.gradient_factor.to(device);
  at::Tensor master = piece.master, first = piece.state[0], second = piece.state[1], parameter = piece.parameter;
  const at::Tensor m = first.to(at::kFloat).lerp(g, 1.0 - factors.beta1);
  const at::Tensor v = second.to(at::kFloat) * h.beta2 + g * g * (1.0 - h.beta2);
  const at::Tensor p = master.to(at::kFloat) * factors.decay -
                       m / (v.sqrt() * factors.second_correction + h.epsilon) * factors.step_size;
  const auto write = [&](at::Tensor& target, const at::Tensor& value) {
    target.copy_(at::where(apply, value.to(target.scalar_type()), target));
  };
  write(first, m);
  write(second, v);
  write(master, p);
  if (parameter.defined()) write(parameter, p);
}

}  // namespace strata::adamw
