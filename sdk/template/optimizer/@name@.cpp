// SGD with momentum, written with libtorch's operators so that it runs on every device. An optimizer defines state()
// (the state per element) and step() (the update); <strata/optimizer.hpp> is the contract. On the CPU, element_pass
// (<strata/toolbox/element_pass.hpp>) reads and writes every element once and is several times faster.
#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <vector>

namespace {

using namespace strata;

#define OPTIMIZER_OPTIONS(OPTION) OPTION(number, momentum, 0.9, "min=0,max=1", "", "Momentum factor.")
STRATA_OPTIONS(Options, OPTIMIZER_OPTIONS)

class Momentum final : public Optimizer {
 public:
  Momentum(PluginContext& /*context*/, const Options& options) : momentum_(options.momentum) {}

  // One fp32 tensor per piece, initially zero; its name in checkpoints is that of torch.optim.SGD.
  std::vector<StateTensor> state(const PieceInfo& /*piece*/) const override {
    return {{"momentum_buffer", at::kFloat}};
  }

  // The engine gives all pieces of a flat parameter at once. This optimizer has one round.
  void step(std::span<Piece* const> pieces, int /*round*/, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) update(*piece, scalars);
  }

 private:
  // A piece is any range of a parameter, so the update of an element must not depend on others; what an update needs of
  // the whole parameter goes through sums() and measure(). The host does not wait for the device: gradient_factor
  // (1 / loss scale x clipping) and apply are tensors. If apply is 0, nothing changes, whatever the gradient holds.
  void update(Piece& piece, const StepScalars& scalars) const {
    const double rate = scalars.learning_rate * piece.learning_rate_factor;
    const at::Tensor apply = scalars.apply != 0;
    const auto write = [&apply](const at::Tensor& target, const at::Tensor& value) {
      target.copy_(at::where(apply, value.to(target.scalar_type()), target));
    };
    const at::Tensor gradient = piece.gradient.to(at::kFloat) * scalars.gradient_factor;
    const at::Tensor direction = piece.state[0] * momentum_ + gradient;
    const at::Tensor updated = piece.master.to(at::kFloat) - direction * rate;
    write(piece.state[0], direction);
    write(piece.master, updated);
    if (piece.parameter.defined()) write(piece.parameter, updated);  // the rounded parameter that layers use
  }

  double momentum_;
};

}  // namespace

STRATA_PLUGIN(Momentum, Options, OPTIMIZER_OPTIONS)
