#include "program/timeline.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace strata::program {
namespace {

// The results that actions wait for: of a forward or a backward, by chunk and micro-batch.
using ResultKey = std::tuple<bool, int, int>;

ResultKey result_of(const ComputeAction& action) {
  return {action.kind == ComputeKind::Forward, action.chunk, action.micro_batch};
}

struct Finished {
  std::int64_t end = 0;
  int stage = 0;
};

using TimeOf = std::function<std::int64_t(const ComputeAction&)>;

class Simulation {
 public:
  // `travel`: how long what an action needs takes from another stage.
  Simulation(const ComputeOrders& orders, const Placement& placement, const TimeOf& time_of, const TimeOf& travel,
             const TimeOf& not_before = {})
      : orders_(orders),
        placement_(placement),
        time_of_(time_of),
        travel_(travel),
        not_before_(not_before),
        clock_(orders.size(), 0) {
    timeline_.stages.resize(orders.size());
    timeline_.blocked.resize(orders.size());
  }

  Timeline run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t stage = 0; stage < orders_.size(); ++stage) {
        while (timeline_.stages[stage].size() < orders_[stage].size() && advance(stage)) progress = true;
      }
    }
    for (std::size_t stage = 0; stage < orders_.size(); ++stage) summarize(stage);
    return std::move(timeline_);
  }

 private:
  std::vector<ComputeAction> needs(const ComputeAction& action) const {
    const int last_chunk = static_cast<int>(placement_.stage_of_chunk.size()) - 1;
    std::vector<ComputeAction> needed;
    const auto need = [&](ComputeKind kind, int chunk) {
      needed.push_back({kind, chunk, action.micro_batch, action.weight_version});
    };
    if (action.kind == ComputeKind::Forward) {
      if (action.chunk > 0) need(ComputeKind::Forward, action.chunk - 1);
    } else if (action.kind == ComputeKind::BackwardWeight) {
      need(ComputeKind::BackwardInput, action.chunk);
    } else if (action.kind != ComputeKind::Update) {
      need(ComputeKind::Forward, action.chunk);
      if (action.chunk < last_chunk) need(ComputeKind::Backward, action.chunk + 1);
    }
    return needed;
  }

  // Runs the stage's next action if all its inputs are ready.
  bool advance(std::size_t stage) {
    const ComputeAction& action = orders_[stage][timeline_.stages[stage].size()];
    std::int64_t start = std::max(clock_[stage], not_before_ ? not_before_(action) : 0);
    for (const ComputeAction& need : needs(action)) {
      const auto found = finished_.find(result_of(need));
      if (found == finished_.end()) {
        timeline_.blocked[stage] =
            Blocked{action, need, placement_.stage_of_chunk[static_cast<std::size_t>(need.chunk)]};
        return false;
      }
      const bool travels = found->second.stage != static_cast<int>(stage);
      start = std::max(start, found->second.end + (travels ? travel_(action) : 0));
    }
    timeline_.blocked[stage].reset();
    const std::int64_t end = start + time_of_(action);
    clock_[stage] = end;
    timeline_.stages[stage].push_back({action, start, end});
    if (action.kind != ComputeKind::BackwardWeight && action.kind != ComputeKind::Update)
      finished_.emplace(result_of(action), Finished{end, static_cast<int>(stage)});
    return true;
  }

  void summarize(std::size_t stage) {
    std::int64_t busy = 0;
    int live = 0;
    int peak = 0;
    for (const TimedAction& timed : timeline_.stages[stage]) {
      busy += timed.end - timed.start;
      if (timed.action.kind == ComputeKind::Forward) peak = std::max(peak, ++live);
      if (timed.action.kind == ComputeKind::Backward || timed.action.kind == ComputeKind::BackwardWeight) --live;
    }
    timeline_.makespan = std::max(timeline_.makespan, clock_[stage]);
    const std::vector<TimedAction>& actions = timeline_.stages[stage];
    timeline_.busy.push_back(busy);
    timeline_.inner_idle.push_back(actions.empty() ? 0 : actions.back().end - actions.front().start - busy);
    timeline_.peak_live.push_back(peak);
  }

  const ComputeOrders& orders_;
  const Placement& placement_;
  const TimeOf& time_of_;
  const TimeOf& travel_;
  const TimeOf not_before_;
  std::vector<std::int64_t> clock_;  // per stage, when its last action ended
  std::map<ResultKey, Finished> finished_;
  Timeline timeline_;
};

}  // namespace

std::int64_t ChunkCost::of(ComputeKind kind) const {
  if (kind == ComputeKind::Forward) return forward;
  if (kind == ComputeKind::Update) return 0;
  return (kind == ComputeKind::BackwardWeight ? 0 : backward_input) +
         (kind == ComputeKind::BackwardInput ? 0 : backward_weight);
}

std::vector<ChunkCost> uniform_costs(int chunks, const ChunkCost& cost) {
  return std::vector<ChunkCost>(static_cast<std::size_t>(chunks), cost);
}

bool Timeline::complete() const {
  return std::none_of(blocked.begin(), blocked.end(), [](const auto& stage) { return stage.has_value(); });
}

double Timeline::bubble() const {
  const auto total = static_cast<double>(makespan) * static_cast<double>(stages.size());
  const auto used = static_cast<double>(std::accumulate(busy.begin(), busy.end(), std::int64_t{0}));
  return total > 0 ? 1.0 - used / total : 0.0;
}

Timeline simulate(const ComputeOrders& orders, const Placement& placement, const std::vector<ChunkCost>& costs) {
  const auto cost_of = [&](const ComputeAction& action) -> const ChunkCost& {
    return costs[static_cast<std::size_t>(action.chunk)];
  };
  const TimeOf time_of = [&](const ComputeAction& action) { return cost_of(action).of(action.kind); };
  const TimeOf travel = [&](const ComputeAction& action) { return cost_of(action).communication; };
  return Simulation(orders, placement, time_of, travel).run();
}

Timeline simulate(const ComputeOrders& orders, const Placement& placement, const TimeOf& time_of,
                  const TimeOf& not_before) {
  const TimeOf travel = [](const ComputeAction&) { return std::int64_t{0}; };
  return Simulation(orders, placement, time_of, travel, not_before).run();
}

}  // namespace strata::program
