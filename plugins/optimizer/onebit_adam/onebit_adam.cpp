// Optimizer onebit_adam: 1-bit Adam (Tang et al., arXiv:2102.02888) as DeepSpeed's OnebitAdam computes it. With
// g = gradient x gradient_factor, the sum over the N ranks of theirs:
//
//   warm-up, freeze_step updates   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
//   then, of this rank's own g     m = mean over ranks of m + (1 - beta1)(N g - m), by SignExchange; v stays
//   always                         p -= lr (m / (sqrt(v) + epsilon) + weight_decay p)
//
// There is no bias correction. One rank sends nothing: its m is exact. An element whose v is still 0 has no scale of
// its own to be divided by: its m is 0 from then on, and only the decay moves it.
#include <strata/options.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/adam_formula.hpp>
#include <strata/toolbox/sign_adam.hpp>
#include <strata/toolbox/sign_exchange.hpp>
#include <strata/toolbox/state_version.hpp>
#include <strata/vector_clones.hpp>

namespace {

using namespace strata;

#define ONEBIT_ADAM_OPTIONS(OPTION)                                                                                 \
  STRATA_MOMENT_OPTIONS(OPTION)                                                                                     \
  OPTION(number, weight_decay, 0.0, "min=0", "", "Each step subtracts learning rate x this x the parameter too.")   \
  OPTION(integer, freeze_step, 100'000, "min=1", "updates",                                                         \
         "Updates of the warm-up, which are Adam's, with gradients summed as ever; 15 to 25 % of a run in the "     \
         "paper. After them the second moment stays as it is, and ranks send signs of momenta: a sixteenth of the " \
         "bytes of gradients in fp16. The norm that is reported is then the root of the sum of the squares of all " \
         "ranks' own gradients.")
STRATA_OPTIONS(OnebitAdamOptions, ONEBIT_ADAM_OPTIONS)

using Step = toolbox::SignAdamStep;
using WarmUp = toolbox::SignAdamWarmUp;

STRATA_VECTOR_CLONES [[gnu::flatten]] void warm_up(const ElementTile& tile, float gradient_factor,
                                                   const WarmUp& formula) {
  update_elements(tile, gradient_factor, formula);
}

class OnebitAdam final : public Optimizer, public ExchangingOptimizer {
 public:
  OnebitAdam(PluginContext& context, const OnebitAdamOptions& options) : context_(context), options_(options) {
    check_betas("onebit_adam", options.betas);
    if (auto* const exchange = static_cast<OwnExchange*>(context.extension(OwnExchange::id)))
      exchange->optimizer_exchanges(options.freeze_step, *this);
  }

  void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& pieces) override {
    exchange_.connect(group, run, pieces);
  }

  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override { return {{"exp_avg"}, {"variance"}}; }

  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    if (scalars.updates < options_.freeze_step)
      return element_step<WarmUp>(
          pieces, scalars, [&](const Piece& piece) { return WarmUp(piece, scalars, options_); }, warm_up);
    std::vector<toolbox::Exchanged> momenta;
    for (const Piece* const piece : pieces) {
      if (piece->master.is_meta()) return;  // in place: a dry run has nothing to count
      const at::Tensor m = piece->state[0].to(at::kFloat);
      const at::Tensor g = toolbox::own_gradient(*piece, scalars);
      const at::Tensor counts = piece->state[1].gt(0).to(at::kFloat);
      const Step step(*piece, scalars, options_);
      momenta.push_back({&piece->info, m.add(g.mul(exchange_.ranks()).sub(m).mul(step.rest1)).mul(counts), counts});
    }
    if (exchange_.connected()) exchange_.mean(momenta, scalars);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = *pieces[i];
      const at::Tensor &m = momenta[i].value, p = piece.master.to(at::kFloat);
      write_applied(piece.state[0], m, scalars);
      write_weights(piece, 0, Step(piece, scalars, options_).moved(p, m, piece.state[1]), scalars);
    }
  }

  void save(StateWriter& writer) const override { exchange_.save(writer); }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    if (const std::string said = exchange_.load(reader); !said.empty()) context_.log(LogLevel::Warning, said);
  }

 private:
  PluginContext& context_;
  OnebitAdamOptions options_;
  toolbox::SignExchange exchange_{"onebit_adam"};
};

}  // namespace

STRATA_PLUGIN(OnebitAdam, OnebitAdamOptions, ONEBIT_ADAM_OPTIONS)
