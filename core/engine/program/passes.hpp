// The passes that lower.hpp applies in sequence: each is a function from list to list, in its own source.
#pragma once
#include "program/parameter_use.hpp"
#include "program/timeline.hpp"

namespace strata::runtime {

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

// ---- Pass 4: gradient reductions and the end of the step (reduction.cpp)

// Reduces each trainable flat parameter once per micro-batch: after the last instruction of that micro-batch that
// writes its gradient, in any layer that uses it. BorrowGradient precedes the first such instruction after the previous
// Reduce. So a split backward holds a full gradient of a deferred parameter only while BackwardWeight computes it. If
// micro-batches overlap (ties between chunks), they share the buffer: a Reduce then includes what the others have
// accumulated so far, and the total is the same. With `updates` within the step, the micro-batches of each update are
// accumulated separately.
Program add_reduction(const Program& program, const ParameterUse& use, int updates = 0);

// Appends the end of the step for the trainable flat parameters: a FinishGradient for each in the order of their last
// Reduce, a SumReplicas for each of `replicated`, a SquareGradient for each, Norm, the rounds of the optimizer's update
// and a Publish for each, in the order in which the next step needs them. A round is an Update for each, after a
// Measure for each and a SumStatistics if `sums_of_round` is true for it.
//
// If chunks update within the step, each Update of a chunk is replaced by these instructions for its flat parameters:
// FinishGradient, SumReplicas, SquareGradient, the rounds, Publish. The step ends with Norm.
Program add_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                 const std::vector<bool>& sums_of_round);

// ---- Pass 5, with `step_policy: delayed`: the update waits for the next step (delay.cpp)

// Moves each update that follows the Norm to the place after the step's last use of its parameter or, if the optimizer
// needs sums over all of them, before the first FinishGradient. Updates use the gradient kept by the previous step; a
// Keep follows each SquareGradient. Updates then wait neither for the step's norm nor for its reductions, and their
// reads from other memory tiers overlap with the backward.
Program delay_updates(const Program& program, const ParameterUse& use);

// ---- Pass 5 where what an update needs comes from another memory tier: it is made in the next step (defer.cpp)

// Moves the updates that follow the Norm before their parameter's first use in the next step or, if the optimizer
// needs sums over all of them, before the first use of any. They use the previous step's gradient in its place, so the
// results are bit-identical, and their reads overlap with the forward: Yue et al. 2025, "GreedySnake"
// (arXiv:2512.17570), where a fraction of them is deferred. pending_updates() is the program that makes them before
// anything reads parameters between steps. Updates of about the first `at_end` of the elements stay at the end,
// because the forward is short: their reads overlap with the backward. If the optimizer needs sums over all, none
// stays.
Program defer_updates(const Program& program, const ParameterUse& use, double at_end);
Program pending_updates(const Program& deferred);

// ---- With `step_policy: speculative`: updates that do not wait for the norm (speculate.cpp)

// A stage that has ended its step would wait for the norm, and so for the last stage, before it could begin the next
// step. Its update assumes instead that the norm will neither clip nor skip, and the first forwards of the next step
// follow before the norm is known. If the assumption was wrong, the update is undone and made again by the norm, and so
// are those forwards: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 4.

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

// Changes a program with plain updates: StartNorm in place of Norm, a SaveState for each parameter before the updates,
// and after them Norm, RestoreState for each and the updates again, which run if the assumption was wrong.
Program speculate(const Program& program);

// ---- With `step_policy: local`: groups of ranks train by themselves and average their weights now and then
// (local.cpp)

// Puts a Synchronize before each Publish.
Program synchronize(const Program& program);

// ---- Pass 6, where chunks update within the step: which values a layer computes with (versions.cpp)

// Adds Bind before a compute that uses another version of a trainable flat parameter than the compute before; Stash
// before the update that overwrites a version which is used later, and Drop after its last use. Updates find the newest
// values bound. Gathered parameters are released before their update and gathered before their next use.
Program add_versions(const Program& program, const ParameterUse& use);

// ---- Pass 7: buffers that rest on other memory tiers (tiers.cpp)

// Adds Fetch and Await before, and Store and Settle after the uses of each buffer that moves. A gradient leaves when
// the next Reduce has started: its FinishGradient moves there, after the last Reduce together with its SquareGradient,
// unless other stages hold it too. A Publish of parameters whose values leave follows their last Update at once. The
// input of a recomputed layer leaves with its Forward and comes back for its backward; a layer has one buffer for each
// micro-batch that is between the two at once. Adds nothing if nothing moves.
Program add_tiers(const Program& program, const ParameterUse& use, const std::vector<int>& replicated);

// ---- Pass 8: they move while the step computes (overlap.cpp)

// Moves each Fetch with contents ahead, to where its buffer is at home and there is room, in the order of uses. Delays
// a Settle until its room is needed, its buffer is fetched again, a quarter of the step's computations have run, or the
// step ends. Reads ahead and writes in flight share room for twice `bytes`, so a read-only or write-only phase of the
// step has all of it. If writes fill more than half, only a Fetch that is needed within a quarter of the computations
// makes them end. 0 changes nothing.
Program overlap_movement(const Program& program, const ParameterUse& use, std::int64_t bytes);

}  // namespace strata::runtime
