// Optimizer adagrad: Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011) as torch.optim.Adagrad computes it. With
// g = gradient x gradient_factor + weight_decay p and t = updates + 1:
//
//   sum += g^2;  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + epsilon)
//
// State begins as zeros, so the first update adds the initial value of the sum.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/element_step.hpp>

namespace {

using namespace strata;

#define ADAGRAD_OPTIONS(OPTION)                                                                                      \
  OPTION(number, lr_decay, 0.0, "min=0", "",                                                                         \
         "Learning rate decay: update t divides the rate by 1 + (t - 1) x lr_decay.")                                \
  OPTION(number, weight_decay, 0.0, "min=0", "", "Weight decay: weight_decay x parameter is added to the gradient.") \
  OPTION(number, initial_accumulator_value, 0.0, "min=0", "", "Initial value of the sum of squared gradients.")      \
  OPTION(number, epsilon, 1e-10, "min=0", "", "Constant added to the square root of the sum.")
STRATA_OPTIONS(AdagradOptions, ADAGRAD_OPTIONS)

struct Formula {
  static constexpr std::size_t states = 1;
  float decay, start, epsilon, learning_rate;

  Formula(const Piece& piece, const StepScalars& scalars, const AdagradOptions& options)
      : decay(static_cast<float>(piece.weight_decay.value_or(options.weight_decay))),
        start(scalars.updates == 0 ? static_cast<float>(options.initial_accumulator_value) : 0.0F),
        epsilon(static_cast<float>(options.epsilon)),
        learning_rate(static_cast<float>(scalars.learning_rate * piece.learning_rate_factor /
                                         (1.0 + static_cast<double>(scalars.updates) * options.lr_decay))) {}

  template <typename Number>
  void operator()(Number& p, const Number& gradient, std::array<Number, states>& state) const {
    Number& sum = state[0];
    const Number g = gradient + decay * p;
    sum = (sum + start) + g * g;
    p = p - learning_rate * (g / (sqrt(sum) + epsilon));
  }
};

STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const Formula& formula) {
  update_elements(tile, gradient_factor, formula);
}

class Adagrad final : public Optimizer {
 public:
  Adagrad(PluginContext& /*context*/, const AdagradOptions& options) : options_(options) {}

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"sum"}}; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    element_step<Formula>(
        pieces, scalars, [&](const Piece& piece) { return Formula(piece, scalars, options_); }, update);
  }

 private:
  AdagradOptions options_;
};

}  // namespace

STRATA_PLUGIN(Adagrad, AdagradOptions, ADAGRAD_OPTIONS)
