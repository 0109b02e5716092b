#pragma once
#include <strata/export.hpp>
#include <strata/group.hpp>
#include <strata/optimizer.hpp>
#include <strata/run_context.hpp>

#include <cstdint>
#include <vector>

namespace strata {

// An optimizer that sends something else than gradients, such as momenta.
class STRATA_EXPORT ExchangingOptimizer {
 public:
  virtual ~ExchangingOptimizer();
  // Before the first step(), in a dry run too: `group` are the data-parallel ranks, all of which have the same pieces.
  // `pieces`: by call of step(), what it will get. Allocates from `run` what the exchange needs. [collective]
  virtual void connect(Group& group, RunContext& run, const std::vector<std::vector<PieceInfo>>& pieces) = 0;
};

// Where an optimizer takes gradients that no rank has added up, and sends what it makes of them itself:
// PluginContext::extension(OwnExchange::id), null if the host has none. What is whose, by update:
//
//   the first `updates`    gradient(), backward, reduce() sums over ranks; step() gets the sum, as ever
//   all that follow        gradient(), backward, reduce() sends nothing; step() gets this rank's own gradient, a term
//                          of that sum, and is [collective] over `group`
//
// Nobody then knows the norm of the whole gradient, so the engine refuses clipping; the norm that it reports, of all
// and of one parameter, is the root of the sum of the squares of all data-parallel ranks' own gradients, and an update
// is skipped where any of these is not finite. Weights of ranks may drift apart where Optimizer::trains_elsewhere; the
// master weights may not. Every rank must own every element, and the update must follow its gradient at once: the
// engine refuses what cannot be combined. `strata plan` shows a step of the first.
class STRATA_EXPORT OwnExchange {
 public:
  static constexpr const char* id = "strata.own_exchange/1";
  virtual ~OwnExchange();
  // An optimizer, in its constructor. `optimizer` outlives the run.
  virtual void optimizer_exchanges(std::int64_t updates, ExchangingOptimizer& optimizer) = 0;
  // A partitioner of which every rank owns every element, in its constructor: it asks leaves_gradients() in reduce().
  virtual void partitioner_can_leave_gradients() = 0;
  // Whether the gradients of the update under way stay each rank's own.
  virtual bool leaves_gradients() const = 0;
};

}  // namespace strata
