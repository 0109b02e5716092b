#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>
#include <strata/optimizer.hpp>
#include <strata/run_context.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// An optimizer that sends something else than gradients, such as momenta.
class STRATA_EXPORT ExchangingOptimizer {
 public:
  virtual ~ExchangingOptimizer();
  // Before the first step(), in a dry run too, where there are several data-parallel ranks: `group`. `whole[k]`: what
  // the k-th exchange() of an update will get as `own`. `owns_all`: its `pieces` are whole parameters too, on every
  // rank. Allocates from `run` what the exchange needs. [collective]
  virtual void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& whole,
                       bool owns_all) = 0;
  // An update after the first (OwnExchange), in place of Optimizer::step(). `pieces`: this rank's of one flat
  // parameter, which may be none. `own`: all elements of every parameter of it, of which only info and gradient are
  // set: this rank's own gradient. That of a piece is its range of this. [collective]
  virtual void exchange(std::span<Piece* const> pieces, std::span<const Piece> own, const StepScalars& scalars) = 0;
};

// Where an optimizer takes gradients that no rank has added up, and sends what it makes of them itself:
// PluginContext::extension(OwnExchange::id), null if the host has none. What is whose, by update:
//
//   the first `updates`    gradient(), backward, reduce() sums over ranks; step() gets the sum, as ever
//   all that follow        gradient(), backward, reduce() sends nothing; exchange() gets this rank's own gradient, a
//                          term of that sum
//
// Nobody then knows the norm of the whole gradient, so the engine refuses clipping; the norm that it reports, of all
// and of one parameter, is the root of the sum of the squares of all data-parallel ranks' own gradients, and an update
// is skipped where any of these is not finite. Weights of ranks may drift apart where Optimizer::trains_elsewhere, and
// then every rank must own every element; the master weights may not. The update must follow its gradient at once. The
// engine refuses what cannot be combined. `strata plan` shows a step of the first.
class STRATA_EXPORT OwnExchange {
 public:
  static constexpr const char* id = "strata.own_exchange/1";
  virtual ~OwnExchange();
  // An optimizer, in its constructor. `optimizer` outlives the run.
  virtual void optimizer_exchanges(std::int64_t updates, ExchangingOptimizer& optimizer) = 0;
  // A partitioner, in its constructor, that asks leaves_gradients() in reduce(): what gradient() lent then stays as it
  // is until the next update's first gradient(). `owns_all`: every rank owns every element, each flat parameter as one
  // slice.
  virtual void partitioner_can_leave_gradients(bool owns_all) = 0;
  // Whether the gradients of the update under way stay each rank's own.
  virtual bool leaves_gradients() const = 0;
};

}  // namespace strata
