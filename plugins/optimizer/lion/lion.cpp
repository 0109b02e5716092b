// Optimizer lion: Lion (Chen et al., arXiv:2302.06675, algorithm 2). With g = gradient x gradient_factor:
//
//   p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>

namespace {

using namespace strata;

#define LION_OPTIONS(OPTION)                                                                           \
  OPTION(numbers, betas, "[0.9, 0.99]", "min=0,max=1", "",                                             \
         "Weight of the momentum in the update's sign, and decay rate of the momentum; both below 1.") \
  STRATA_DECAY_OPTION(OPTION, 0.0)
STRATA_OPTIONS(LionOptions, LION_OPTIONS)

struct Formula {
  static constexpr std::size_t states = 1;
  float beta1, rest1, beta2, rest2, decay, learning_rate;

  Formula(const Piece& piece, const StepScalars& scalars, const LionOptions& options) {
    const double beta = scalars.momentum.value_or(options.betas[0]);
    const double rate = scalars.learning_rate * piece.learning_rate_factor;
    beta1 = static_cast<float>(beta), rest1 = static_cast<float>(1.0 - beta);
    beta2 = static_cast<float>(options.betas[1]), rest2 = static_cast<float>(1.0 - options.betas[1]);
    decay = static_cast<float>(1.0 - rate * piece.weight_decay.value_or(options.weight_decay));
    learning_rate = static_cast<float>(rate);
  }

  template <typename Number>
  void operator()(Number& p, const Number& g, std::array<Number, states>& state) const {
    Number& m = state[0];
    p = p * decay - learning_rate * sign(Number(beta1 * m + rest1 * g));
    m = beta2 * m + rest2 * g;
  }
};

STRATA_UPDATE_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const Formula& formula) {
  update_elements(tile, gradient_factor, formula);
}

class Lion final : public Optimizer {
 public:
  Lion(PluginContext& /*context*/, const LionOptions& options) : options_(options) {
    check_betas("lion", options.betas);
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"exp_avg"}}; }

  bool takes_momentum() const override { return true; }  // the first of betas, as torch's OneCycleLR does

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    element_step<Formula>(
        pieces, scalars, [&](const Piece& piece) { return Formula(piece, scalars, options_); }, update);
  }

 private:
  LionOptions options_;
};

}  // namespace

STRATA_PLUGIN(Lion, LionOptions, LION_OPTIONS)
