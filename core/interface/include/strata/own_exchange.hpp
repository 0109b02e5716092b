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
  // several data-parallel ranks (`group`). `whole[k]`: the `own` of the k-th exchange() of an update. `owns_all`: its
  // `pieces` are whole parameters too, on every rank. [collective]
  virtual void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& whole,
                       bool owns_all) = 0;
  // Makes an update after the first ones (see OwnExchange), in place of Optimizer::step(). `pieces`: this rank's pieces
  // of one flat parameter, possibly none. `own`: every parameter of it, whole, with only info and gradient set: this
  // rank's own gradient. The own gradient of a piece is its range of these. [collective]
  virtual void exchange(std::span<Piece* const> pieces, std::span<const Piece> own, const StepScalars& scalars) = 0;
};

// Registry of an optimizer that takes unreduced gradients and does its own communication:
// PluginContext::extension(OwnExchange::id), null if the host has none. Calls by update:
//
//   the first `updates`    gradient(), backward, reduce() sums over ranks; step() gets the sum, as usual
//   later updates          gradient(), backward, reduce() sends nothing; exchange() gets this rank's own gradient, a
//                          term of that sum
//
// With exchange() the norm of the whole gradient is unknown, so the engine refuses clipping; the norm that it reports,
// of all parameters and of one, is the root of the sum of the squares of all data-parallel ranks' own gradients, and an
// update is skipped if any of these is not finite. Weights of ranks may diverge if Optimizer::trains_elsewhere, and
// then every rank must own every element; master weights may not. The update must follow its gradient at once. The
// engine refuses other combinations. `strata plan` shows a step of the first updates.
class STRATA_EXPORT OwnExchange {
 public:
  static constexpr const char* id = "strata.own_exchange/1";
  virtual ~OwnExchange();
  // Registers an optimizer, in its constructor. `optimizer` outlives the run.
  virtual void optimizer_exchanges(std::int64_t updates, ExchangingOptimizer& optimizer) = 0;
  // Registers a partitioner, in its constructor, that checks leaves_gradients() in reduce(): if true, the buffer of
  // gradient() stays unchanged until the next update's first gradient(). `owns_all`: every rank owns every element,
  // each flat parameter as one slice.
  virtual void partitioner_can_leave_gradients(bool owns_all) = 0;
  // True if the gradients of the current update stay local to each rank.
  virtual bool leaves_gradients() const = 0;
};

}  // namespace strata
