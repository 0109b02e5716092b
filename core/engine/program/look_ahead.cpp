#include <algorithm>
#include <set>
#include <utility>

#include "program/passes.hpp"

namespace strata::program {
namespace {

// Each stage's order and then the same again, with micro-batches that follow the first ones.
ComputeOrders two_steps(const ComputeOrders& orders, int micro_batches) {
  ComputeOrders both = orders;
  for (std::vector<ComputeAction>& order : both) {
    const std::size_t actions = order.size();
    for (std::size_t i = 0; i < actions; ++i) {
      order.push_back(order[i]);
      order.back().micro_batch += micro_batches;
    }
  }
  return both;
}

// Of the first `actions` of each stage those whose inputs are among them too.
void leave_out_what_lacks_inputs(const ComputeOrders& orders, const Placement& placement,
                                 std::vector<std::size_t>& actions) {
  const auto is_ahead = [&](int chunk, int micro_batch) {
    const auto stage = static_cast<std::size_t>(placement.stage_of_chunk[static_cast<std::size_t>(chunk)]);
    const auto end = orders[stage].begin() + static_cast<std::ptrdiff_t>(actions[stage]);
    return std::any_of(orders[stage].begin(), end, [&](const ComputeAction& action) {
      return action.chunk == chunk && action.micro_batch == micro_batch;
    });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t stage = 0; stage < orders.size(); ++stage)
      for (std::size_t i = 0; i < actions[stage]; ++i) {
        const ComputeAction& action = orders[stage][i];
        if (action.chunk == 0 || is_ahead(action.chunk - 1, action.micro_batch)) continue;
        actions[stage] = i;
        changed = true;
      }
  }
}

}  // namespace

bool LookAhead::any() const {
  return std::ranges::any_of(actions, [](std::size_t count) { return count > 0; });
}

LookAhead look_ahead(const ComputeOrders& orders, const Placement& placement,
                     const std::function<std::int64_t(const ComputeAction&)>& time_of) {
  int micro_batches = 0;
  for (const std::vector<ComputeAction>& order : orders)
    for (const ComputeAction& action : order) micro_batches = std::max(micro_batches, action.micro_batch + 1);
  const ComputeOrders both = two_steps(orders, micro_batches);
  const Timeline unbounded = simulate(both, placement, time_of);
  std::int64_t end = 0;  // of the first step
  for (std::size_t stage = 0; stage < orders.size(); ++stage)
    end = std::max(end, unbounded.stages[stage][orders[stage].size() - 1].end);
  LookAhead found;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    const std::vector<TimedAction>& all = unbounded.stages[stage];
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(orders[stage].size());
    const auto last = std::find_if(first, all.end(), [&](const TimedAction& timed) {
      return timed.action.kind != ComputeKind::Forward || timed.start >= end;
    });
    found.actions.push_back(static_cast<std::size_t>(last - first));
  }
  leave_out_what_lacks_inputs(orders, placement, found.actions);
  std::set<std::pair<int, int>> ahead;  // forwards, by chunk and micro-batch
  for (std::size_t stage = 0; stage < orders.size(); ++stage)
    for (std::size_t i = 0; i < found.actions[stage]; ++i)
      ahead.emplace(orders[stage][i].chunk, orders[stage][i].micro_batch + micro_batches);
  const auto not_before = [&](const ComputeAction& action) -> std::int64_t {
    const bool waits = action.kind != ComputeKind::Forward || !ahead.contains({action.chunk, action.micro_batch});
    return action.micro_batch >= micro_batches && waits ? end : 0;
  };
  found.period = simulate(both, placement, time_of, not_before).makespan - end;
  return found;
}

}  // namespace strata::program
