// The calls of an optimizer that read and write its state.
#pragma once
#include <strata/optimizer.hpp>
#include <strata/own_exchange.hpp>

#include <memory>
#include <span>
#include <string>

#include "stage/setup.hpp"

namespace strata::stage {

// Calls the optimizer; errors name the call.
class OptimizerCalls {
 public:
  explicit OptimizerCalls(const Setup& setup) : optimizer_(setup.plugins.optimizer), rank_(setup.place.rank) {}
  virtual ~OptimizerCalls() = default;
  // `parameter`: name of the flat parameter that the pieces belong to.
  virtual void step(const std::string& parameter, std::span<Piece* const> pieces, int round,
                    const StepScalars& scalars);
  virtual void measure(const Piece& piece, int round, const StepScalars& scalars);
  virtual void exchange(const std::string& parameter, ExchangingOptimizer& exchanging, std::span<Piece* const> pieces,
                        std::span<const Piece> own, const StepScalars& scalars);

 private:
  NamedPlugin<Optimizer> optimizer_;
  int rank_;
};

// Returns the calls of a run; in a dry run those that do not read values: an optimizer's formula needs them, and what
// its ranks send in an update of units that they share does not.
std::unique_ptr<OptimizerCalls> make_optimizer_calls(const Setup& setup, const Group* tensor);

}  // namespace strata::stage
