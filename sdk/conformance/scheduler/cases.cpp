// Cases for schedulers: drawn pipelines, and what takes all shapes together.
#include <strata/error.hpp>

#include <chrono>
#include <optional>

#include "program/validate_schedule.hpp"
#include "scheduler/checks.hpp"
#include "scheduler/schedules.hpp"

namespace strata::conformance {

namespace {

void split_as_declared(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  const bool declared = subject.can(Capability::SplitsBackward);
  bool splits = false;
  for_each_schedule(*scheduler, some_shapes(), [&](const PipelineShape& shape, const Schedule& schedule) {
    for (const auto& order : schedule.orders)
      for (const ComputeAction& action : order) {
        const bool is_split = action.kind == ComputeKind::BackwardInput || action.kind == ComputeKind::BackwardWeight;
        splits = splits || is_split;
        require(declared || !is_split, to_string(shape) + ": it computes " + to_string(action) +
                                           " but does not declare splits_backward, so "
                                           "models that cannot split backward would be accepted");
      }
  });
  require(splits || !declared,
          "the plugin declares splits_backward but splits no backward, so models that cannot split are refused "
          "needlessly");
}

// What every rank computes at every start must not take a noticeable time.
void large_pipelines_are_quick(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  constexpr double bound_s = 2.0;
  int taken = 0;
  for (const PipelineShape& shape : {PipelineShape{64, 1, 256}, PipelineShape{32, 2, 256}, PipelineShape{16, 4, 128}}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::optional<Schedule> schedule = schedule_of(*scheduler, shape, 130);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!schedule) continue;
    ++taken;
    require(seconds < bound_s, to_string(shape) + ", 130 layers: placing and ordering all stages took " +
                                   std::to_string(seconds) + " s; the bound is " + std::to_string(bound_s) + " s");
    runtime::validate_orders(full_name(subject.manifest()), schedule->orders, schedule->placement, shape);
  }
  if (taken == 0) throw Skip("the plugin refuses 16 to 64 stages with 1, 2 and 4 chunks");
}

}  // namespace

std::vector<Case> scheduler_cases() {
  return {
      {"scheduler.drawn",
       "On every drawn pipeline each chunk has layers, a stage, one forward and one backward per micro-batch, all "
       "stages "
       "run to the end, and every process and call gets the same answers.",
       scheduler_checks::drawn_pipelines_are_right, std::chrono::seconds(300), true},
      {"scheduler.splits_backward", "The order splits backward if and only if the manifest declares splits_backward.",
       split_as_declared},
      {"scheduler.large", "Placing and ordering 64 stages with 256 micro-batches takes at most 2 s.",
       large_pipelines_are_quick},
  };
}

}  // namespace strata::conformance
