#include "sgd_step.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <strata/toolbox/element_pass.hpp>
#include <strata/vector_clones.hpp>

namespace strata::sgd {
namespace {

// What one step multiplies by.
struct Factors {
  float learning_rate;
  float decay;  // of the parameter, added to the gradient
  float momentum;
  float fresh;  // the gradient's part in the momentum buffer
  bool nesterov;

  Factors(const Piece& piece, const StepScalars& scalars, const SgdHyperparameters& h)
      : learning_rate(static_cast<float>(scalars.learning_rate * piece.learning_rate_factor)),
        decay(static_cast<float>(piece.weight_decay.value_or(h.weight_decay))),
        momentum(static_cast<float>(scalars.momentum.value_or(h.momentum))),
        fresh(scalars.updates == 0 ? 1.0F : static_cast<float>(1.0 - h.dampening)),
        nesterov(h.nesterov) {}
};

STRATA_VECTOR_CLONES void update(float* __restrict__ p, const float* __restrict__ gradient, std::int64_t count,
                                 const Factors& f, float gradient_factor) {
  for (std::int64_t i = 0; i < count; ++i) p[i] -= f.learning_rate * (gradient[i] * gradient_factor + f.decay * p[i]);
}

STRATA_VECTOR_CLONES void update_with_momentum(float* __restrict__ p, const float* __restrict__ gradient,
                                               float* __restrict__ b, std::int64_t count, const Factors& f,
                                               float gradient_factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * gradient_factor + f.decay * p[i];
    b[i] = f.momentum * b[i] + f.fresh * g;
    p[i] -= f.learning_rate * (f.nesterov ? g + f.momentum * b[i] : b[i]);
  }
}

}  // namespace

void sgd_step(std::span<Piece* const> pieces, const StepScalars& scalars, const SgdHyperparameters& hyperparameters) {
  if (scalars.apply.item<float>() == 0.0F) return;
  std::vector<Factors> factors;
  for (const Piece* const piece : pieces) factors.emplace_back(*piece, scalars, hyperparameters);
  const float gradient_factor = scalars.gradient_factor.item<float>();
  element_pass(pieces, [&](std::size_t piece, const ElementTile& tile) {
    if (tile.state[0] == nullptr) {
      update(tile.master, tile.gradient, tile.count, factors[piece], gradient_factor);
    } else {
      update_with_momentum(tile.master, tile.gradient, tile.state[0], tile.count, factors[piece], gradient_factor);
    }
  });
}

void sgd_reference_step(const Piece& piece, const StepScalars& scalars, const SgdHyperparameters& h) {
  const Factors factors(piece, scalars, h);
  const at::Device device = piece.master.device();
  const at::Tensor apply = scalars.apply.to(device) != 0;
  at::Tensor master = piece.master, parameter = piece.parameter;
  const auto write = [&](at::Tensor& target, const at::Tensor& value) {
    target.copy_(at::where(apply, value.to(target.scalar_type()), target));
  };
  const at::Tensor p = master.to(at::kFloat);
  at::Tensor g = piece.gradient.to(at::kFloat) * scalars.gradient_factor.to(device) + p * factors.decay;
  if (!piece.state.empty()) {
    at::Tensor buffer = piece.state[0];
    const at::Tensor b = buffer.to(at::kFloat) * factors.momentum + g * factors.fresh;
    write(buffer, b);
    g = h.nesterov ? g + b * factors.momentum : b;
  }
  const at::Tensor result = p - g * factors.learning_rate;
  write(master, result);
  if (parameter.defined()) write(parameter, result);
}

}  // namespace strata::sgd
