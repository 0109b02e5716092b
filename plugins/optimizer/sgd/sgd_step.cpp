#include "sgd_step.hpp"

#include <strata/toolbox/element_step.hpp>

namespace strata::sgd {
namespace {

template <bool has_momentum>
struct Formula {
  static constexpr std::size_t states = has_momentum ? 1 : 0;
  float learning_rate;
  float decay;  // of the parameter, added to the gradient
  float momentum;
  float fresh;  // the gradient's part in the momentum buffer
  bool nesterov;

  Formula(const Piece& piece, const StepScalars& scalars, const SgdHyperparameters& h)
      : learning_rate(static_cast<float>(scalars.learning_rate * piece.learning_rate_factor)),
        decay(static_cast<float>(piece.weight_decay.value_or(h.weight_decay))),
        momentum(static_cast<float>(scalars.momentum.value_or(h.momentum))),
        fresh(scalars.updates == 0 ? 1.0F : static_cast<float>(1.0 - h.dampening)),
        nesterov(h.nesterov) {}

  template <typename Number>
  void operator()(Number& p, const Number& gradient, std::array<Number, states>& state) const {
    const Number g = gradient + decay * p;
    if constexpr (has_momentum) {
      Number& b = state[0];
      b = momentum * b + fresh * g;
      p = p - learning_rate * (nesterov ? g + momentum * b : b);
    } else {
      p = p - learning_rate * g;
    }
  }
};

STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const Formula<false>& formula) {
  update_elements(tile, gradient_factor, formula);
}

STRATA_UPDATE_CLONES [[gnu::flatten]] void update_with_momentum(const ElementTile& tile, float gradient_factor,
                                                                const Formula<true>& formula) {
  update_elements(tile, gradient_factor, formula);
}

}  // namespace

void sgd_step(std::span<Piece* const> pieces, const StepScalars& scalars, const SgdHyperparameters& h) {
  if (h.momentum == 0.0)
    element_step<Formula<false>>(
        pieces, scalars, [&](const Piece& p) { return Formula<false>(p, scalars, h); }, update);
  else
    element_step<Formula<true>>(
        pieces, scalars, [&](const Piece& p) { return Formula<true>(p, scalars, h); }, update_with_momentum);
}

void sgd_reference_step(const Piece& piece, const StepScalars& scalars, const SgdHyperparameters& h) {
  if (h.momentum == 0.0)
    tensor_step(piece, scalars, Formula<false>(piece, scalars, h));
  else
    tensor_step(piece, scalars, Formula<true>(piece, scalars, h));
}

}  // namespace strata::sgd
