#include "program/lower.hpp"

#include "plugins/plugin_call.hpp"
#include "program/passes.hpp"
#include "program/validate_program.hpp"
#include "program/validate_schedule.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace strata::program {
namespace {

// The actions of each stage from its `begin` to its `end`.
template <class Action>
std::vector<std::vector<Action>> cut(const std::vector<std::vector<Action>>& stages,
                                     const std::vector<std::size_t>& begin, const std::vector<std::size_t>& end) {
  std::vector<std::vector<Action>> result;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto at = [&](std::size_t place) { return stages[stage].begin() + static_cast<std::ptrdiff_t>(place); };
    result.emplace_back(at(begin[stage]), at(end[stage]));
  }
  return result;
}

// A stage's program in two parts: what may be carried out at the end of the step before, and the rest.
using Parts = std::array<Program, 2>;

// Runs passes 1 and 2 for every stage, checks the programs together and returns that of `stage`. The first part has the
// first `ahead` actions of each stage, and the transfers of their results.
Parts lower_to_communication(const ComputeOrders& orders, const Placement& placement,
                             const std::vector<bool>& recompute, int stage, const std::vector<std::size_t>& ahead) {
  const int chunks = static_cast<int>(placement.stage_of_chunk.size());
  const Timeline timeline = simulate(orders, placement, uniform_costs(chunks, {}));
  strata_check(timeline.complete(), "a validated order cannot run");
  const std::vector<std::size_t> none(orders.size(), 0);
  std::vector<std::size_t> all;
  for (const std::vector<ComputeAction>& order : orders) all.push_back(order.size());
  std::vector<Program> programs(orders.size());
  Parts parts;
  for (const bool rest : {false, true}) {
    const std::vector<std::size_t>&begin = rest ? ahead : none, &end = rest ? all : ahead;
    const ComputeOrders actions = cut(orders, begin, end);
    Timeline times;
    times.stages = cut(timeline.stages, begin, end);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      const Program part =
          add_communication(expand_layers(actions[i], placement, recompute), static_cast<int>(i), times, placement);
      if (static_cast<int>(i) == stage) parts.at(rest ? 1 : 0) = part;
      programs[i].insert(programs[i].end(), part.begin(), part.end());
    }
  }
  validate_communication(programs, placement);
  return parts;
}

// The parameters for the first part, and then for the rest. Nothing stays gathered from one to the other: the
// previous step may continue in between.
Program join(const Parts& parts, const ParameterUse& use, const Lookahead& lookahead) {
  Program program = add_residency(parts[0], use, lookahead);
  for (Instruction& instruction : program) instruction.ahead = true;
  const Program rest = add_residency(parts[1], use, lookahead);
  program.insert(program.end(), rest.begin(), rest.end());
  return program;
}

// Throws UserError if the numbers of layers in the config are not those of a model of this many layers and chunks.
void check_layers_per_chunk(const PipelineShape& shape, int layers) {
  const std::vector<int>& given = shape.layers_per_chunk;
  if (given.empty()) return;
  const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  if (given.size() == static_cast<std::size_t>(shape.chunks()) && sum == layers) return;
  throw UserError(
      "parallel.layers_per_chunk has {} numbers with the sum {}; it must have one for each of the {} chunks ({} stages "
      "x {}), with the sum {}: the layers of the model, including embedding and head",
      given.size(), sum, shape.chunks(), shape.stages, shape.chunks_per_stage, layers);
}

// Throws UserError if the scheduler's cut differs from the config's.
void check_follows(const std::string& scheduler, const Placement& placement, const PipelineShape& shape) {
  if (shape.layers_per_chunk.empty()) return;
  for (std::size_t chunk = 0; chunk < placement.layers_of_chunk.size(); ++chunk) {
    const auto [begin, end] = placement.layers_of_chunk[chunk];
    if (end - begin != shape.layers_per_chunk[chunk])
      throw UserError("{} chooses its own cut of the model's layers; leave parallel.layers_per_chunk out", scheduler);
  }
}

}  // namespace

int updates_within_step(const ComputeOrders& orders) {
  if (orders.empty() || orders.front().empty()) return 0;
  return static_cast<int>(std::ranges::count_if(orders.front(), [&](const ComputeAction& action) {
    return action.kind == ComputeKind::Update && action.chunk == orders.front().front().chunk;
  }));
}

PipelineShape with_costs(PipelineShape shape, const std::vector<LayerCost>& layers, const Placement& placement) {
  shape.chunk_costs.clear();
  for (const auto& [begin, end] : placement.layers_of_chunk) {
    LayerCost& chunk = shape.chunk_costs.emplace_back();
    for (int number = begin; number < end; ++number) {
      const LayerCost& layer = layers.at(static_cast<std::size_t>(number));
      chunk.parameters += layer.parameters;
      chunk.forward_time += layer.forward_time;
      chunk.backward_input_time += layer.backward_input_time;
      chunk.backward_weight_time += layer.backward_weight_time;
      chunk.activation_bytes += layer.activation_bytes;
      chunk.weight += layer.weight;
    }
  }
  return shape;
}

StepPlan plan_step(const std::string& scheduler, const Scheduler& plugin, const PipelineShape& shape,
                   const std::vector<LayerCost>& layers) {
  if (shape.stages < 1 || shape.chunks_per_stage < 1 || shape.micro_batches < 1) {
    throw UserError("a pipeline needs at least 1 stage, 1 chunk per stage and 1 micro-batch; found {}, {} and {}",
                    shape.stages, shape.chunks_per_stage, shape.micro_batches);
  }
  check_layers_per_chunk(shape, static_cast<int>(layers.size()));
  const auto place = [&] { return plugin.place(layers, shape); };
  StepPlan plan{shape, plugins::plugin_call(scheduler, "place", place), {}};
  validate_placement(scheduler, plan.placement, shape, static_cast<int>(layers.size()));
  check_follows(scheduler, plan.placement, shape);
  plan.shape = with_costs(shape, layers, plan.placement);
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto order = [&] { return plugin.order(plan.shape, stage); };
    plan.orders.push_back(plugins::plugin_call(scheduler, "order (stage " + std::to_string(stage) + ")", order));
  }
  validate_orders(scheduler, plan.orders, plan.placement, shape);
  std::vector<std::optional<int>> bounds;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto peak = [&] { return plugin.peak_live(plan.shape, stage); };
    bounds.push_back(plugins::plugin_call(scheduler, "peak_live (stage " + std::to_string(stage) + ")", peak));
  }
  validate_peak_live(scheduler, plan.orders, plan.placement, bounds);
  return plan;
}

LookAhead look_ahead(const StepPlan& plan) {
  LookAhead found = look_ahead(plan.orders, plan.placement, [&](const ComputeAction& action) {
    return std::max<std::int64_t>(1, plan.shape.cost_of(action.kind, action.chunk));
  });
  const LookAhead even = look_ahead(plan.orders, plan.placement, [&](const ComputeAction& action) {
    return PipelineShape().cost_of(action.kind, action.chunk);
  });
  for (std::size_t stage = 0; stage < found.actions.size(); ++stage)
    found.actions[stage] = std::max(found.actions[stage], even.actions[stage]);
  return found;
}

namespace {

UpdatePlan plan_updates(const LayerOptions& layers, const std::vector<int>& parameters, int within_step,
                        bool looks_ahead) {
  const auto all = [&](UpdatePlace place) { return all_updates(place, parameters, layers.sums_of_round); };
  if (within_step > 0) return all(UpdatePlace::WithinStep);
  if (looks_ahead) return all(UpdatePlace::BeforeNorm);
  if (layers.policy == config::StepPolicy::Delayed) return all(UpdatePlace::AfterUse);
  if (layers.defers_updates)
    return deferred_updates(parameters, layers.sums_of_round, layers.parameters, layers.updates_at_end);
  UpdatePlan updates = all(UpdatePlace::AtEnd);
  updates.averages = layers.policy == config::StepPolicy::Local;
  return updates;
}

// Before anything moves between memory tiers.
Program lower_step(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage) {
  LookAhead ahead{std::vector<std::size_t>(plan.orders.size(), 0)};
  if (layers.policy == config::StepPolicy::Speculative) ahead = look_ahead(plan);
  Program program = join(lower_to_communication(plan.orders, plan.placement, layers.recompute, stage, ahead.actions),
                         layers.parameters, lookahead);
  const int within_step = updates_within_step(plan.orders);
  const UpdatePlan updates =
      plan_updates(layers, updated_parameters(program, layers.parameters), within_step, ahead.any());
  program = add_reduction(program, layers.parameters, within_step);
  program = add_end_of_step(program, layers.parameters, layers.replicated, updates);
  return within_step > 0 ? add_versions(program, layers.parameters) : program;
}

}  // namespace

Program lower_pending_updates(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage) {
  Program program = pending_updates(lower_step(plan, layers, lookahead, stage));
  program = overlap_movement(add_tiers(program, layers.parameters, {}), layers.parameters, layers.read_ahead);
  validate_tiers(program, layers.parameters);
  return program;
}

Program lower_training(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage) {
  Program program = lower_step(plan, layers, lookahead, stage);
  const int updates = updates_within_step(plan.orders);
  program = add_tiers(program, layers.parameters, layers.replicated);
  program = overlap_movement(program, layers.parameters, layers.read_ahead);
  validate_residency(program, layers.parameters, lookahead);
  validate_reduction(program, layers.parameters);
  validate_end_of_step(program, layers.parameters, layers.replicated, layers.sums_of_round, updates,
                       layers.policy == config::StepPolicy::Local);
  validate_versions(program, layers.parameters, lookahead.resident);
  validate_tiers(program, layers.parameters);
  return program;
}

Program lower_evaluation(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage,
                         int micro_batches) {
  strata_check(micro_batches >= 1 && micro_batches <= plan.shape.micro_batches,
               "an evaluation takes part of a step's micro-batches");
  ComputeOrders forwards = plan.orders;
  for (auto& order : forwards) {
    std::erase_if(order, [&](const ComputeAction& action) {
      return action.kind != ComputeKind::Forward || action.micro_batch >= micro_batches;
    });
  }
  const std::vector<bool> keep_nothing(layers.recompute.size(), false);
  const std::vector<std::size_t> nothing_ahead(forwards.size(), 0);
  Program program = join(lower_to_communication(forwards, plan.placement, keep_nothing, stage, nothing_ahead),
                         layers.parameters, lookahead);
  for (Instruction& instruction : program)
    instruction.evaluates = instruction.op == Op::Forward || instruction.op == Op::SendActivation;
  program = overlap_movement(add_tiers(program, layers.parameters, {}), layers.parameters, layers.read_ahead);
  validate_residency(program, layers.parameters, lookahead);
  validate_tiers(program, layers.parameters);
  return program;
}

}  // namespace strata::program
