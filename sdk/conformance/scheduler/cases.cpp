// Cases for schedulers, on a grid of pipeline shapes.
#include <strata/error.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "program/lower.hpp"
#include "program/validate_schedule.hpp"
#include "scheduler/schedules.hpp"

namespace strata::conformance {

namespace {

using runtime::ComputeOrders;

std::string name_of(Subject& subject) {
  return full_name(subject.manifest());
}

bool same(const Placement& left, const Placement& right) {
  return left.stage_of_chunk == right.stage_of_chunk && left.layers_of_chunk == right.layers_of_chunk;
}

void placements_are_valid(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  int placed = 0;
  for (const PipelineShape& shape : all_shapes()) {
    if (shape.micro_batches % 5 != 1) continue;
    const int chunks = shape.chunks();
    for (const int layers : {chunks, chunks + 1, 2 * chunks + 3, 5 * chunks - 1, 97}) {
      if (layers < chunks) continue;
      try {
        runtime::validate_placement(name_of(subject), scheduler->place(layers_of(layers), shape), shape, layers);
        ++placed;
      } catch (const UserError& error) {
        // A refusal is the scheduler's own; the validator's begins with the name it was given.
        require(!std::string(error.what()).starts_with(name_of(subject)),
                to_string(shape) + ", " + std::to_string(layers) + " layers: " + error.what());
      }
    }
  }
  require(placed > 0, "place() refuses every model on every shape");
  for (const int stages : {1, 2, 3, 8})
    for (const int layers : {stages, 2 * stages, 4 * stages + 1, 97}) {
      const int chunks = scheduler->chunks_per_stage(stages, layers);
      const std::string asked = std::to_string(stages) + " stages, " + std::to_string(layers) +
                                " layers: chunks_per_stage() asks for " + std::to_string(chunks);
      require(chunks >= 1, asked + "; at least 1 is needed");
      require(chunks == scheduler->chunks_per_stage(stages, layers),
              asked + ", and for another number the second time");
      if (layers >= 2 * stages) require(chunks * stages <= layers, asked + ", for which the layers are too few");
    }
}

void too_few_layers_are_refused(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  for_each_schedule(*scheduler, some_shapes(), [&](const PipelineShape& shape, const Schedule&) {
    for (const int layers : {0, shape.chunks() - 1}) {
      try {
        const Placement placement = scheduler->place(layers_of(layers), shape);
        throw Failure(to_string(shape) + ": place() accepts " + std::to_string(layers) + " layers for " +
                      std::to_string(shape.chunks()) +
                      " chunks; every chunk needs a layer, so it must throw a UserError");
      } catch (const UserError&) {
      }
    }
  });
}

// By hand, without the validator: each chunk and micro-batch once forward, once backward, on the chunk's stage.
void everything_is_computed_once(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  for_each_schedule(*scheduler, all_shapes(), [&](const PipelineShape& shape, const Schedule& schedule) {
    std::map<std::string, int> times;
    for (int stage = 0; stage < shape.stages; ++stage) {
      for (const ComputeAction& action : schedule.orders[static_cast<std::size_t>(stage)]) {
        const std::string text = to_string(action);
        require(action.chunk >= 0 && action.chunk < shape.chunks() && action.micro_batch >= 0 &&
                    action.micro_batch < shape.micro_batches,
                to_string(shape) + ": stage " + std::to_string(stage) + " computes " + text + ", which does not exist");
        require(schedule.placement.stage_of_chunk[static_cast<std::size_t>(action.chunk)] == stage,
                to_string(shape) + ": stage " + std::to_string(stage) + " computes " + text +
                    ", whose chunk is on another stage");
        if (action.kind != ComputeKind::Update)
          ++times[to_string(ComputeAction{action.kind, action.chunk, action.micro_batch})];
      }
    }
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
        const auto count = [&](ComputeKind kind) { return times[to_string(ComputeAction{kind, chunk, micro_batch})]; };
        const bool whole = count(ComputeKind::Backward) == 1 && count(ComputeKind::BackwardInput) == 0 &&
                           count(ComputeKind::BackwardWeight) == 0;
        const bool split = count(ComputeKind::Backward) == 0 && count(ComputeKind::BackwardInput) == 1 &&
                           count(ComputeKind::BackwardWeight) == 1;
        require(count(ComputeKind::Forward) == 1 && (whole || split),
                to_string(shape) + ": chunk " + std::to_string(chunk) + " computes micro-batch " +
                    std::to_string(micro_batch) + " " + std::to_string(count(ComputeKind::Forward)) +
                    " times forward, " + std::to_string(count(ComputeKind::Backward)) + " times backward, " +
                    std::to_string(count(ComputeKind::BackwardInput)) + " times for the input and " +
                    std::to_string(count(ComputeKind::BackwardWeight)) +
                    " times for the weights; it must be once forward, and either "
                    "once backward or once for each of the two");
      }
    }
  });
}

runtime::LayerOptions one_parameter_a_layer(int layers) {
  runtime::LayerOptions options;
  options.recompute.assign(static_cast<std::size_t>(layers), false);
  for (int layer = 0; layer < layers; ++layer) {
    options.parameters.flat_parameters.push_back({10, true});
    options.parameters.flat_parameters_of_layer.push_back({layer});
  }
  return options;
}

// All stages' orders run to the end, and so do the sends and receives that the engine puts between them.
void runs_to_the_end(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  for_each_schedule(*scheduler, all_shapes(), [&](const PipelineShape& shape, const Schedule& schedule) {
    runtime::validate_orders(name_of(subject), schedule.orders, schedule.placement, shape);
    std::vector<std::optional<int>> declared;
    for (int stage = 0; stage < shape.stages; ++stage) declared.push_back(scheduler->peak_live(shape, stage));
    runtime::validate_peak_live(name_of(subject), schedule.orders, schedule.placement, declared);
    const auto some = some_shapes();
    const bool chosen = std::any_of(some.begin(), some.end(), [&](const PipelineShape& one) {
      return one.stages == shape.stages && one.chunks_per_stage == shape.chunks_per_stage &&
             one.micro_batches == shape.micro_batches;
    });
    if (!chosen) return;
    const runtime::StepPlan plan{shape, schedule.placement, schedule.orders};
    // Copies are kept of parameters that stay: a stage that updates within the step releases none.
    const Lookahead lookahead =
        runtime::updates_within_step(schedule.orders) > 0 ? Lookahead{.resident = true} : Lookahead{1, 20, 0, 40};
    for (int stage = 0; stage < shape.stages; ++stage)
      lower_training(plan, one_parameter_a_layer(shape.chunks() + 1), lookahead, stage);
  });
}

void answers_are_pure(Subject& subject) {
  const auto first = subject.make<Scheduler>();
  const auto other = subject.make<Scheduler>({}, 1, {2, 1, 1});  // on another rank
  const std::vector<PipelineShape> shapes = some_shapes();
  std::vector<std::optional<Schedule>> answers;
  for (const PipelineShape& shape : shapes) answers.push_back(schedule_of(*first, shape));
  const auto compare = [&](std::size_t i, const Scheduler& scheduler, const char* who) {
    const std::optional<Schedule> again = schedule_of(scheduler, shapes[i]);
    const bool equal =
        again.has_value() == answers[i].has_value() &&
        (!again || (same(again->placement, answers[i]->placement) && again->orders == answers[i]->orders));
    require(equal, to_string(shapes[i]) + ": " + who +
                       " gives another placement or order; ranks that follow different orders "
                       "deadlock");
  };
  for (std::size_t i = shapes.size(); i-- > 0;) {  // in another order, so that what was asked before would show
    compare(i, *first, "the same instance, called again,");
    compare(i, *other, "an instance on another rank");
  }
}

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

void weights_are_those_of_the_forward(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  for_each_schedule(*scheduler, some_shapes(), [&](const PipelineShape& shape, const Schedule& schedule) {
    for (const auto& order : schedule.orders) {
      std::map<std::pair<int, int>, int> version;
      std::map<int, int> updates;  // by chunk, so far
      for (const ComputeAction& action : order) {
        if (action.kind == ComputeKind::Update) {
          ++updates[action.chunk];
          continue;
        }
        require(action.weight_version >= 0 && action.weight_version <= updates[action.chunk],
                to_string(shape) + ": " + to_string(action) + " uses weights of " +
                    std::to_string(action.weight_version) + " updates; by then its chunk has made " +
                    std::to_string(updates[action.chunk]) + " in this step");
        if (action.kind == ComputeKind::Forward) version[{action.chunk, action.micro_batch}] = action.weight_version;
        const auto forward = version.find({action.chunk, action.micro_batch});
        require(forward != version.end(), to_string(shape) + ": " + to_string(action) + " comes before its forward");
        require(forward->second == action.weight_version, to_string(shape) + ": " + to_string(action) +
                                                              " uses another weight version "
                                                              "than its forward, so its gradient is wrong");
      }
    }
  });
}

// By hand, without the validator: what the gradient of each micro-batch is in, chunk by chunk.
void check_updates(const PipelineShape& shape, const Schedule& schedule) {
  std::map<int, std::vector<std::set<int>>> taken;  // by chunk: the micro-batches of each Update
  for (const auto& order : schedule.orders) {
    std::map<int, std::set<int>> waiting;  // by chunk: micro-batches with a gradient that no Update has taken
    for (const ComputeAction& action : order) {
      if (action.kind == ComputeKind::Backward || action.kind == ComputeKind::BackwardWeight)
        waiting[action.chunk].insert(action.micro_batch);
      if (action.kind != ComputeKind::Update) continue;
      std::set<int>& micro_batches = waiting[action.chunk];
      require(!micro_batches.empty() && *micro_batches.rbegin() == action.micro_batch,
              to_string(shape) + ": " + to_string(action) + " is to take gradients up to that of micro-batch " +
                  std::to_string(action.micro_batch) + "; the last there is another");
      taken[action.chunk].push_back(std::exchange(micro_batches, {}));
    }
    for (const auto& [chunk, micro_batches] : waiting)
      require(taken.empty() || micro_batches.empty(),
              to_string(shape) + ": no update takes the gradient of chunk " + std::to_string(chunk) + ", micro-batch " +
                  (micro_batches.empty() ? "" : std::to_string(*micro_batches.begin())));
  }
  if (taken.empty()) return;
  const std::size_t of_an_update = taken.begin()->second.front().size();
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
    int next = 0;
    for (const std::set<int>& micro_batches : taken[chunk]) {
      require(micro_batches.size() == of_an_update && *micro_batches.begin() == next,
              to_string(shape) + ": an update of chunk " + std::to_string(chunk) + " takes " +
                  std::to_string(micro_batches.size()) + " micro-batches from " +
                  std::to_string(*micro_batches.begin()) + " on; updates take equally many, in order");
      next = *micro_batches.rbegin() + 1;
    }
    require(next == shape.micro_batches, to_string(shape) + ": chunk " + std::to_string(chunk) + " updates by " +
                                             std::to_string(next) + " micro-batches only");
  }
}

void updates_take_every_gradient(Subject& subject) {
  bool updates = false;
  std::vector<fakes::OptionTexts> settings = subject.settings();
  settings.emplace_back();
  for (const fakes::OptionTexts& setting : settings) {
    std::optional<fakes::LoadedPlugin<Scheduler>> scheduler;
    try {
      scheduler.emplace(subject.make<Scheduler>(setting));
    } catch (const UserError&) {
      continue;
    }
    for (const PipelineShape& shape : some_shapes()) {
      const std::optional<Schedule> schedule = schedule_of(**scheduler, shape);
      if (!schedule) continue;
      updates = updates || runtime::updates_within_step(schedule->orders) > 0;
      check_updates(shape, *schedule);
    }
  }
  if (!updates) throw Skip("the plugin updates at the end of the step");
}

void settings_are_valid(Subject& subject) {
  if (subject.manifest().options.empty()) throw Skip("the plugin has no options");
  for (const fakes::OptionTexts& setting : subject.settings()) {
    std::optional<fakes::LoadedPlugin<Scheduler>> scheduler;
    try {
      scheduler.emplace(subject.make<Scheduler>(setting));
    } catch (const UserError&) {
      continue;
    }
    for (const PipelineShape& shape : some_shapes()) {
      try {
        const std::optional<Schedule> schedule = schedule_of(**scheduler, shape);
        if (!schedule) continue;
        runtime::validate_placement(name_of(subject), schedule->placement, shape, shape.chunks() + 1);
        runtime::validate_orders(name_of(subject), schedule->orders, schedule->placement, shape);
      } catch (const std::exception& error) {
        throw Failure("with " + to_string(setting) + ", " + to_string(shape) + ": " + error.what());
      }
    }
  }
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
    runtime::validate_orders(name_of(subject), schedule->orders, schedule->placement, shape);
  }
  if (taken == 0) throw Skip("the plugin refuses 16 to 64 stages with 1, 2 and 4 chunks");
}

}  // namespace

std::vector<Case> scheduler_cases() {
  return {
      {"scheduler.placement", "place() gives every chunk layers and a stage, for any number of layers and any costs.",
       placements_are_valid},
      {"scheduler.too_few_layers", "A model with fewer layers than chunks is refused with a UserError.",
       too_few_layers_are_refused},
      {"scheduler.actions", "Each chunk runs one forward and one backward per micro-batch, on its own stage.",
       everything_is_computed_once},
      {"scheduler.runs", "All stages run to the end without a deadlock.", runs_to_the_end},
      {"scheduler.pure", "place() and order() give the same answers every time and on every rank.", answers_are_pure},
      {"scheduler.splits_backward", "The order splits backward if and only if the manifest declares splits_backward.",
       split_as_declared},
      {"scheduler.weight_versions",
       "A backward uses the same weight version as its forward, and one that its chunk has.",
       weights_are_those_of_the_forward},
      {"scheduler.updates",
       "Updates within the step take every gradient once, those of equally many micro-batches each, on all chunks.",
       updates_take_every_gradient},
      {"scheduler.settings", "Every option setting gives valid orders or is refused.", settings_are_valid},
      {"scheduler.large", "Placing and ordering 64 stages with 256 micro-batches takes at most 2 s.",
       large_pipelines_are_quick},
  };
}

}  // namespace strata::conformance
