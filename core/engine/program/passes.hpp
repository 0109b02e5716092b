// The passes that lower.hpp puts in a row: each is a function from list to list, in a source of its own.
#pragma once
#include "program/parameter_use.hpp"
#include "program/timeline.hpp"

namespace strata::runtime {

// ---- Pass 1: expands chunks to layers (expand.cpp)

// One compute instruction per layer of each action's chunk: forward from the first layer to the last, backward in
// reverse. `recompute` has one entry per layer of the model: true if its backward recomputes the forward. A chunk's
// last layer keeps its activations nevertheless if its backward follows at once. An Update of a chunk becomes one
// Update that names the chunk, until pass 4.
Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& recompute);

// ---- Pass 2: sends and receives between stages (communicate.cpp)

// [Note: no deadlock, on any backend] The strictest backend has no buffers (a send ends when its receive is posted) and
// one queue per device, of which it works only on the front. It cannot deadlock if all stages issue their sends and
// receives in the order of one list of all transfers, and every compute depends only on earlier entries of that list:
// the first unfinished transfer is then at the front of both its queues as soon as it is posted, and everything it
// waits for is done. The list sorts the transfers by the time at which a simulated run (forward 1, backward 2) has them
// ready, with ties in a fixed order. A transfer that depends on another is ready later, so the condition holds for
// every schedule that can run at all. Collectives among the ranks of one stage may go anywhere in between, because
// those ranks have the same program.

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

// The maximum number of elements gathered or being gathered at any time in `program`; 0 if parameters are resident.
std::int64_t peak_live_elements(const Program& program, const ParameterUse& use);

// The phase for which a Forward, Backward or BackwardInput gathers its parameters.
Phase phase_of(const Instruction& compute);
// The flat parameters whose values a compute instruction reads.
const std::vector<int>& values_used(const Instruction& compute, const ParameterUse& use);

// ---- Pass 4: gradient reductions and the end of the step (reduction.cpp)

// Each trainable flat parameter is reduced once per micro-batch: after the last instruction of that micro-batch that
// writes its gradient, in any layer that uses it. BorrowGradient precedes the first that does after the previous
// Reduce. So a split backward holds a full gradient of a deferred parameter only while BackwardWeight computes it. If
// micro-batches overlap (ties between chunks), they share the buffer: a Reduce then includes what the others have
// accumulated so far, and the total is the same. With `updates` within the step, the micro-batches of each are
// accumulated by themselves.
Program add_reduction(const Program& program, const ParameterUse& use, int updates = 0);

// Appends the end of the step for the trainable flat parameters: a FinishGradient for each in the order of their last
// Reduce, a SumReplicas for each of `replicated`, a SquareGradient for each, Norm, the rounds of the optimizer's update
// and a Publish for each, in the order in which the next step needs them. A round is an Update for each, after a
// Measure for each and a SumStatistics if `sums_of_round` says that it begins with sums.
//
// Where chunks update within the step, the same stands at the place of each Update of a chunk, for its flat parameters:
// FinishGradient, SumReplicas, SquareGradient, the rounds, Publish. The step ends with Norm.
Program add_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                 const std::vector<bool>& sums_of_round);

// ---- Pass 5, with `step_policy: delayed`: the update waits for the next step (delay.cpp)

// Puts the updates that follow the Norm behind the step's last use of their parameter, each by itself, or where the
// optimizer needs sums over all of them in front of the first FinishGradient. They take the gradient that the step
// before kept; a Keep follows each SquareGradient. Updates then wait neither for the step's norm nor for its
// reductions, and what comes from other memory tiers for them comes while the backward computes.
Program delay_updates(const Program& program, const ParameterUse& use);

// ---- Pass 5 where what an update needs comes from another memory tier: it is made in the next step (defer.cpp)

// Puts the updates that follow the Norm in front of their parameter's first use in the next step, or where the
// optimizer needs sums over all of them in front of the first use of any. They take the gradient that the step before
// left where it is, so every bit is as without; and what they need comes while the forward computes: Yue et al. 2025,
// "GreedySnake" (arXiv:2512.17570), where a fraction of them is. What reads parameters between steps has them made
// first, by the second program. Those of the first `at_end` of the elements, or as near to it as they can be, stay
// where they are, for the forward is short: what they need comes during the backward. Where the optimizer needs sums
// over all, none stays.
Program defer_updates(const Program& program, const ParameterUse& use, double at_end);
Program pending_updates(const Program& deferred);

// ---- With `step_policy: speculative`: updates that do not wait for the norm (speculate.cpp)

// A stage that has ended its step waits for the norm, and so for the last stage to end, although it could begin the
// next. Its update assumes that the norm will neither clip nor skip, and the first forwards of the next step follow it
// before the norm is known. If it then says otherwise, the update is taken back and made again, as the norm says, and
// those forwards too: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 4.

// What of a step is made before the norm of the step before is known, in a simulated run of one after the other.
struct LookAhead {
  // By stage, how many actions at the beginning of its order: forwards that begin before the last stage has ended the
  // step before, and all that these need.
  std::vector<std::size_t> actions;
  std::int64_t period = 0;  // the time from the end of a step to that of the next
  bool any() const;
};
LookAhead look_ahead(const ComputeOrders& orders, const Placement& placement,
                     const std::function<std::int64_t(const ComputeAction&)>& time_of);

// From a program with plain updates: StartNorm in place of Norm, a SaveState for each parameter before the updates, and
// after them Norm, RestoreState for each and the updates again, which are carried out if the assumption was wrong.
Program speculate(const Program& program);

// ---- With `step_policy: local`: groups of ranks train by themselves and average their weights now and then
// (local.cpp)

// Puts a Synchronize in front of each Publish.
Program synchronize(const Program& program);

// ---- Pass 6, where chunks update within the step: which values a layer computes with (versions.cpp)

// Adds Bind before a compute that uses another version of a trainable flat parameter than the compute before; Stash
// before the update that overwrites a version which is used later, and Drop after its last use. Updates find the newest
// values bound. What was gathered is released before its update and gathered before its next use.
Program add_versions(const Program& program, const ParameterUse& use);

// ---- Pass 7: buffers that rest on other memory tiers (tiers.cpp)

// Adds Fetch and Await before, and Store and Settle after the uses of each buffer that moves. A gradient leaves when
// the next Reduce has started: its FinishGradient stands there, after the last Reduce together with its SquareGradient,
// unless other stages hold it too. A Publish of parameters whose values leave follows their last Update at once. The
// input of a recomputed layer leaves with its Forward and comes back for its backward; a layer has as many buffers for
// it as micro-batches are between the two at once. Nothing is added where nothing moves.
Program add_tiers(const Program& program, const ParameterUse& use, const std::vector<int>& replicated);

// ---- Pass 8: they move while the step computes (overlap.cpp)

// Each Fetch with contents starts as soon as its buffer is at home and there is room, in the order of their uses. A
// Settle is put off until its room is needed, its buffer is fetched again, a quarter of the step's computations have
// been made, or the step ends. Reads that started early and writes under way share room for twice `bytes`, so a part of
// the step that only reads, or only writes, has all of it. Where writes fill more than half, only a Fetch that is
// needed within a quarter of the computations makes them end. With 0 nothing changes.
Program overlap_movement(const Program& program, const ParameterUse& use, std::int64_t bytes);

}  // namespace strata::runtime
