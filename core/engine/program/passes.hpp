// The passes that lower.hpp applies in sequence: each is a function from list to list, in its own source.
#pragma once
#include "program/parameter_use.hpp"
#include "program/timeline.hpp"
#include "program/update_plan.hpp"

namespace strata::program {

// ---- Pass 1: expands chunks to layers (expand.cpp)

// Makes one compute instruction per layer of each action's chunk: forward from the first layer to the last, backward in
// reverse. `recompute` has one entry per layer of the model: true if its backward recomputes the forward. A chunk's
// last layer is not recomputed if its backward follows at once. An Update of a chunk becomes one Update that names the
// chunk, until pass 4.
Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& recompute);

// ---- Pass 2: sends and receives between stages (communicate.cpp)

// [Note: no deadlock, on any backend] The strictest backend has no buffers (a send ends when its receive is posted) and
// one queue per device, and works only on its front. It cannot deadlock if all stages issue their sends and receives in
// the order of one list of all transfers, and every compute depends only on earlier entries of that list: the first
// unfinished transfer is then at the front of both its queues as soon as it is posted, and everything it waits for is
// done. The list sorts the transfers by the time at which a simulated run (forward 1, backward 2) has them ready, with
// ties in a fixed order. A transfer that depends on another is ready later, so the condition holds for every schedule
// that can run at all. Collectives among the ranks of one stage may go anywhere in between, because those ranks have
// the same program.

// `timeline` is the complete run of all stages' orders with uniform costs, `program` the expanded order of `stage`. A
// send directly follows the compute that produces its data. A receive precedes the compute during which, or directly
// before which, its data becomes ready in the simulated run: the transfer overlaps with that compute, and the buffer is
// held for at most one compute. The order of the list may move it later.
Program add_communication(const Program& program, int stage, const Timeline& timeline, const Placement& placement);

// ---- Pass 3: when each flat parameter is gathered and released (residency.cpp)

// Forward, Backward and BackwardInput use the flat parameters of their layer. Each is gathered before its first use and
// released after its last. In between it stays gathered if the next use is near, by any of these rules:
// - no layer with other flat parameters computes in between;
// - the layers that do have at most `reuse_distance` elements, counted at each compute;
// - it would be prefetched again at once: there are at most `layers` computes in between, and it and they have at most
//   `elements` elements.
//
// It never stays if `reuse_distance` is negative. If `live_parameters` is too small to keep all, those with the nearest
// next use stay. Prefetches start as early as `lookahead` allows, in the order of the uses. The parameters of a single
// layer are gathered regardless of the limits. If parameters are `resident`, nothing is added.
Program add_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead);

// Returns the most elements gathered or being gathered at any time in `program`; 0 if parameters are resident.
std::int64_t peak_live_elements(const Program& program, const ParameterUse& use);

// Returns the phase for which a Forward, Backward or BackwardInput gathers its parameters.
Phase phase_of(const Instruction& compute);
// Returns the flat parameters whose values a compute instruction reads.
const std::vector<int>& values_used(const Instruction& compute, const ParameterUse& use);

// ---- Pass 4: gradient reductions (reduction.cpp) and the end of the step (end_of_step.cpp)

// Reduces each trainable flat parameter once per micro-batch: after the last instruction of that micro-batch that
// writes its gradient, in any layer that uses it. BorrowGradient precedes the first such instruction after the previous
// Reduce. So a split backward holds a full gradient of a deferred parameter only while BackwardWeight computes it. If
// micro-batches overlap (ties between chunks), they share the buffer: a Reduce then includes what the others have
// accumulated so far, and the total is the same. With `updates` within the step, the micro-batches of each update are
// accumulated separately.
Program add_reduction(const Program& program, const ParameterUse& use, int updates = 0);

// Adds the end of the step for the trainable flat parameters: a FinishGradient for each in the order of their last
// Reduce, a SumReplicas for each of `replicated`, a SquareGradient for each, and Norm. Each update stands at its place
// in the plan, see update_plan.hpp. An update is all rounds and a Publish for each parameter, in the order in which the
// next step needs them; a round is an Update for each, after a Measure for each and a SumStatistics if it has sums.
// - BeforeUse, AfterUse: in front of the first or behind the last instruction that uses the parameter; AfterUse adds a
//   Keep behind the SquareGradient.
// - BeforeNorm: StartNorm, SaveState for each, the update, Norm, RestoreState for each, and the update again, which
//   runs if the assumption was wrong.
// - WithinStep: in place of each Update of a chunk, behind the FinishGradient, SumReplicas and SquareGradient of the
//   chunk's parameters.
//
// If replica groups average their weights, a Synchronize precedes each Publish.
Program add_end_of_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                        const UpdatePlan& updates);
// Returns the updates BeforeUse of a program by themselves, for everything that reads parameters between steps.
Program pending_updates(const Program& program);

// ---- With `step_policy: speculative`: what a stage does before the norm is known (look_ahead.cpp)

// A stage that has ended its step would wait for the norm, and so for the last stage, before it could begin the next
// step. With updates BeforeNorm, the first forwards of the next step follow before the norm is known. If the norm clips
// or skips, they are discarded and run again.

// Part of a step that runs before the previous step's norm is known, in a simulated run of consecutive steps.
struct LookAhead {
  // Number, by stage, of actions at the beginning of its order: forwards that begin before the last stage has ended the
  // previous step, and all actions that these need.
  std::vector<std::size_t> actions;
  std::int64_t period = 0;  // time from the end of a step to the end of the next
  bool any() const;
};
LookAhead look_ahead(const ComputeOrders& orders, const Placement& placement,
                     const std::function<std::int64_t(const ComputeAction&)>& time_of);

// ---- Pass 5, where chunks update within the step: which values a layer computes with (versions.cpp)

// Adds Bind before a compute that uses another version of a trainable flat parameter than the compute before; Stash
// before the update that overwrites a version which is used later, and Drop after its last use. Updates find the newest
// values bound. Gathered parameters are released before their update and gathered before their next use.
Program add_versions(const Program& program, const ParameterUse& use);

// ---- Pass 6: buffers that rest on other memory tiers (tiers.cpp)

// Adds Fetch and Await before, and Store and Settle after the uses of each buffer that moves. A gradient leaves when
// the next Reduce has started: its FinishGradient moves there, after the last Reduce together with its SquareGradient,
// unless other stages hold it too. A Publish of parameters whose values leave follows their last Update at once. The
// input of a recomputed layer leaves with its Forward and comes back for its backward; a layer has one buffer for each
// micro-batch that is between the two at once. Adds nothing if nothing moves.
Program add_tiers(const Program& program, const ParameterUse& use, const std::vector<int>& replicated);

// ---- Pass 7: they move while the step computes (overlap.cpp)

// Moves each Fetch with contents ahead, to where its buffer is at home and there is room, in the order of uses. Delays
// a Settle until its room is needed, its buffer is fetched again, a quarter of the step's computations have run, or the
// step ends. Reads ahead and writes in flight share room for twice `bytes`, so a read-only or write-only phase of the
// step has all of it. If writes fill more than half, only a Fetch that is needed within a quarter of the computations
// makes them end. 0 changes nothing.
Program overlap_movement(const Program& program, const ParameterUse& use, std::int64_t bytes);

}  // namespace strata::program
