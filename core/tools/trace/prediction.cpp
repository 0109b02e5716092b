#include "tools/trace/prediction.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "program/validate_schedule.hpp"
#include "report/run_summary.hpp"

namespace strata::trace {

namespace {

using program::TimedAction;

// A pass of a micro-batch through a chunk: its layers' computes, and the gathers before and between them.
struct Pass {
  ComputeAction action;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t compute = 0;
  std::int64_t gathers = 0;
};

std::optional<ComputeKind> kind_of(const std::string& op) {
  for (const auto& [name, kind] :
       {std::pair{"Forward", ComputeKind::Forward}, std::pair{"Backward", ComputeKind::Backward},
        std::pair{"BackwardInput", ComputeKind::BackwardInput},
        std::pair{"BackwardWeight", ComputeKind::BackwardWeight}})
    if (op == name) return kind;
  return std::nullopt;
}

// A stage that updates within the step has what ends other steps between its passes.
bool is_gather(const schedule::Event& event) {
  return event.category == "gather" || event.category == "reduce" || event.category == "offload" ||
         event.category == "end of step";
}

// The passes of one rank's step. Gathers after the last belong to none.
std::vector<Pass> passes_of(const std::vector<schedule::Event>& events) {
  std::vector<Pass> passes;
  std::int64_t gathers = 0;  // since the last compute
  for (const schedule::Event& event : events) {
    if (is_gather(event)) gathers += event.end - event.begin;
    const std::optional<ComputeKind> kind = kind_of(event.op);
    if (!kind) continue;
    const ComputeAction action{*kind, event.chunk, event.micro_batch};
    if (passes.empty() || !(passes.back().action == action)) passes.push_back({.action = action, .begin = event.begin});
    passes.back().end = event.end;
    passes.back().compute += event.end - event.begin;
    passes.back().gathers += std::exchange(gathers, 0);
  }
  return passes;
}

using Steps = std::vector<std::vector<Pass>>;  // of one step, by stage

using Part = std::function<std::int64_t(const Pass&)>;

// The medians of a part by kind and chunk, over all steps.
std::map<std::pair<ComputeKind, int>, std::int64_t> medians(const std::vector<Steps>& all, const Part& part) {
  std::map<std::pair<ComputeKind, int>, std::vector<double>> values;
  for (const Steps& step : all)
    for (const std::vector<Pass>& stage : step)
      for (const Pass& pass : stage)
        values[{pass.action.kind, pass.action.chunk}].push_back(static_cast<double>(part(pass)));
  std::map<std::pair<ComputeKind, int>, std::int64_t> found;
  for (auto& [key, list] : values) found[key] = static_cast<std::int64_t>(report::median(list));
  return found;
}

program::Timeline measured_timeline(const Steps& step, std::int64_t origin) {
  program::Timeline timeline;
  for (const std::vector<Pass>& stage : step) {
    std::vector<TimedAction>& actions = timeline.stages.emplace_back();
    std::int64_t busy = 0;
    for (const Pass& pass : stage) {
      actions.push_back({pass.action, pass.begin - origin, pass.end - origin});
      busy += pass.end - pass.begin;
      timeline.makespan = std::max(timeline.makespan, actions.back().end);
    }
    timeline.busy.push_back(busy);
    timeline.inner_idle.push_back(actions.empty() ? 0 : actions.back().end - actions.front().start - busy);
  }
  timeline.blocked.resize(step.size());
  return timeline;
}

const schedule::RankTrace& first_rank_of(const schedule::TraceFile& trace, int stage) {
  for (const schedule::RankTrace& rank : trace.ranks)
    if (rank.stage == stage) return rank;
  throw UserError("the trace has no rank of stage {}", stage);
}

}  // namespace

std::vector<Comparison> compare(const schedule::TraceFile& trace) {
  std::vector<const schedule::RankTrace*> ranks;
  for (int stage = 0; stage < trace.shape.stages; ++stage) ranks.push_back(&first_rank_of(trace, stage));
  std::vector<Comparison> found;
  std::vector<Steps> all;
  for (const auto& [step, events] : ranks.front()->steps) {
    Comparison one{.step = step};
    Steps passes;
    for (const schedule::RankTrace* rank : ranks) {
      const auto of_step = rank->steps.find(step);
      if (of_step == rank->steps.end()) throw UserError("the trace has no step {} of rank {}", step, rank->rank);
      StageTimes& times = one.stages.emplace_back();
      passes.push_back(passes_of(of_step->second));
      for (const Pass& pass : passes.back()) {
        times.compute += pass.compute;
        times.gathers += pass.gathers;
      }
      for (const schedule::Event& event : of_step->second) {
        times.tensor += event.waited_for_tensor;
        if (event.category == "end of step") times.end_of_step += event.end - event.begin;
      }
      one.end_of_step = std::max(one.end_of_step, times.end_of_step);
    }
    found.push_back(std::move(one));
    all.push_back(std::move(passes));
  }
  if (found.empty()) throw UserError("the trace has no step: the run ended before the first one that it was to trace");
  program::ComputeOrders orders;  // validate_orders() refuses a stage without passes
  for (const std::vector<Pass>& stage : all.front()) {
    orders.emplace_back();
    for (const Pass& pass : stage) orders.back().push_back(pass.action);
  }
  program::validate_orders("the trace of " + trace.scheduler, orders, trace.placement, trace.shape);
  const auto simulated = [&](const std::map<std::pair<ComputeKind, int>, std::int64_t>& times) {
    return program::simulate(orders, trace.placement, [&](const ComputeAction& action) {
      return times.at({action.kind, action.chunk});
    });
  };
  const Part whole = [](const Pass& pass) { return pass.compute + pass.gathers; };
  const program::Timeline predicted = simulated(medians(all, [](const Pass& pass) { return pass.compute; }));
  const std::int64_t with_gathers = simulated(medians(all, whole)).makespan;
  for (std::size_t i = 0; i < found.size(); ++i) {
    Comparison& one = found[i];
    std::int64_t origin = std::numeric_limits<std::int64_t>::max();
    std::map<std::tuple<ComputeKind, int, int>, std::int64_t> times;
    for (const std::vector<Pass>& stage : all[i]) {
      origin = std::min(origin, stage.front().begin - stage.front().gathers);
      for (const Pass& pass : stage)
        times[{pass.action.kind, pass.action.chunk, pass.action.micro_batch}] = whole(pass);
    }
    one.measured = measured_timeline(all[i], origin);
    one.predicted = predicted;
    const program::Timeline actual = program::simulate(orders, trace.placement, [&](const ComputeAction& action) {
      return times.at({action.kind, action.chunk, action.micro_batch});
    });
    one.explanation = {predicted.makespan, with_gathers - predicted.makespan, actual.makespan - with_gathers,
                       one.measured.makespan - actual.makespan, one.measured.makespan};
    for (std::size_t stage = 0; stage < one.stages.size(); ++stage) {
      StageTimes& stage_times = one.stages[stage];
      stage_times.idle = one.measured.makespan - stage_times.compute - stage_times.gathers;
      stage_times.predicted_idle = predicted.makespan - predicted.busy[stage];
    }
  }
  return found;
}

}  // namespace strata::trace
