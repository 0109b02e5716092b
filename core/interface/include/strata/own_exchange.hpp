#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>
#include <strata/optimizer.hpp>
#include <strata/run_context.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// An optimizer that does its own communication, e.g. of momenta instead of gradients.
class STRATA_EXPORT ExchangingOptimizer {
 public:
  virtual ~ExchangingOptimizer();
  // Allocates from `run` the memory of the exchange. Called before the first step(), in a dry run too, if there are
  // several data-parallel ranks (`group`). `whole[k]`: the infos of `own` in the k-th exchange() of each update.
  // `owns_all`: true if the `pieces` of exchange(), too, are whole parameters, on every rank. [collective]
  virtual void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& whole,
                       bool owns_all) = 0;
  // Makes an update after the first ones (see OwnExchange), in place of Optimizer::step(). `pieces`: this rank's pieces
  // of one flat parameter, possibly none. `own`: every parameter of this flat parameter, whole; only info and gradient
  // are set, and gradient is this rank's own, not reduced over ranks. The own gradient of a piece is its range of the
  // parameter's gradient in `own`. [collective]
  virtual void exchange(std::span<Piece* const> pieces, std::span<const Piece> own, const StepScalars& scalars) = 0;
};

// Registry for an optimizer that takes unreduced gradients and does its own communication:
// PluginContext::extension(OwnExchange::id), null if the host has none. Calls by update:
//
//   the first `updates`    gradient(), backward, reduce() sums over ranks; step() gets the sum, as usual
//   later updates          gradient(), backward, reduce() sends nothing; exchange() gets this rank's own gradient, a
//                          term of that sum
//
// With exchange() the norm of the whole gradient is unknown, so the engine refuses clipping. The norms that it reports,
// of all parameters and of each one, are the root of the sum of the squares of all data-parallel ranks' own gradients;
// an update is skipped if any of these gradients is not finite. If Optimizer::trains_elsewhere, the trained weights of
// ranks may diverge, and then every rank must own every element; master weights must stay equal. The engine refuses
// other combinations, and every `step_policy` except `plain`, because each update uses the gradient of its own step.
// `strata plan` shows a step of the first updates.
class STRATA_EXPORT OwnExchange {
 public:
  static constexpr const char* id = "strata.own_exchange/1";
  virtual ~OwnExchange();
  // Registers an optimizer; called in its constructor. `updates`: number of first updates with reduced gradients.
  // `optimizer` outlives the run.
  virtual void optimizer_exchanges(std::int64_t updates, ExchangingOptimizer& optimizer) = 0;
  // Registers a partitioner that checks leaves_gradients() in reduce(); called in its constructor. While it is true,
  // the buffer of gradient() stays unchanged until the next update's first gradient(). `owns_all`: every rank owns
  // every element, each flat parameter as one slice.
  virtual void partitioner_can_leave_gradients(bool owns_all) = 0;
  // True if the gradients of the current update stay local to each rank.
  virtual bool leaves_gradients() const = 0;
};

}  // namespace strata
