#include "stage/optimizer_calls.hpp"

#include <strata/tensor_units.hpp>

#include "plugins/plugin_call.hpp"

namespace strata::stage {

void OptimizerCalls::step(const std::string& parameter, std::span<Piece* const> pieces, int round,
                          const StepScalars& scalars) {
  plugins::plugin_call(
      optimizer_.name, [&] { return "step(" + parameter + ")"; }, rank_,
      [&] { optimizer_->step(pieces, round, scalars); });
}

void OptimizerCalls::measure(const Piece& piece, int round, const StepScalars& scalars) {
  plugins::plugin_call(
      optimizer_.name, [&] { return "measure(" + piece.info.parameter + ")"; }, rank_,
      [&] { optimizer_->measure(piece, round, scalars); });
}

void OptimizerCalls::exchange(const std::string& parameter, ExchangingOptimizer& exchanging,
                              std::span<Piece* const> pieces, std::span<const Piece> own, const StepScalars& scalars) {
  plugins::plugin_call(
      optimizer_.name, [&] { return "exchange(" + parameter + ")"; }, rank_,
      [&] { exchanging.exchange(pieces, own, scalars); });
}

namespace {

class DryCalls final : public OptimizerCalls {
 public:
  DryCalls(const Setup& setup, bool shares_units) : OptimizerCalls(setup), shares_units_(shares_units) {}
  void step(const std::string& parameter, std::span<Piece* const> pieces, int round,
            const StepScalars& scalars) override {
    if (shares_units_) OptimizerCalls::step(parameter, pieces, round, scalars);
  }
  void measure(const Piece&, int, const StepScalars&) override {}
  void exchange(const std::string&, ExchangingOptimizer&, std::span<Piece* const>, std::span<const Piece>,
                const StepScalars&) override {}

 private:
  bool shares_units_;
};

}  // namespace

std::unique_ptr<OptimizerCalls> make_optimizer_calls(const Setup& setup, const Group* tensor) {
  if (!setup.dry_run) return std::make_unique<OptimizerCalls>(setup);
  const bool has_units = dynamic_cast<TensorUnits*>(setup.plugins.optimizer.plugin) != nullptr;
  return std::make_unique<DryCalls>(setup, tensor != nullptr && has_units);
}

}  // namespace strata::stage
