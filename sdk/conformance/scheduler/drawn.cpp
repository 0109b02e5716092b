// Drawn shapes, costs and settings: what the orders are checked by is written by hand, and then by the engine's own
// validator.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/scheduler.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "conformance/drawn/search.hpp"
#include "program/lower.hpp"
#include "program/timeline.hpp"
#include "program/validate_schedule.hpp"

namespace strata::conformance {

namespace {

struct Schedule {
  Placement placement;
  program::ComputeOrders orders;
};

std::string to_string(const PipelineShape& shape) {
  return count(shape.stages, "stage") + " of " + count(shape.chunks_per_stage, "chunk") + ", " +
         count(shape.micro_batches, "micro-batch");
}

struct SchedulerWorld {
  fakes::OptionTexts options;
  PipelineShape shape;
  std::vector<LayerCost> layers;
  bool knows_costs = true;  // when it orders
};

std::vector<LayerCost> draw_layers(Draws& draws, int count) {
  std::vector<LayerCost> layers;
  const std::int64_t pattern = draws.between(0, 3), heavy = draws.between(0, count - 1);
  for (int i = 0; i < count; ++i) {
    std::int64_t cost = 10;  // all alike
    if (pattern == 1) cost = i == heavy ? 1000 : 10;
    if (pattern == 2) cost = i % 3 == 1 ? 0 : 10 + i;
    if (pattern == 3)
      cost = static_cast<std::int64_t>(mixed(static_cast<std::uint64_t>(heavy), static_cast<std::uint64_t>(i)) % 1000);
    layers.push_back({100 * cost, cost, cost, cost / 2, 8 * cost, 100 * cost});
  }
  return layers;
}

SchedulerWorld draw_pipeline(Draws& draws, const Subject& subject) {
  SchedulerWorld world;
  world.options = draws.options(subject.manifest().options);
  PipelineShape& shape = world.shape;
  shape.stages = static_cast<int>(draws.chance(3) ? draws.between(1, 12) : draws.between(1, 4));
  shape.chunks_per_stage = static_cast<int>(draws.between(1, 3));
  shape.micro_batches = static_cast<int>(draws.chance(3) ? draws.size(256) : draws.between(1, 16));
  world.layers = draw_layers(draws, shape.chunks() + static_cast<int>(draws.between(0, 2 * shape.chunks())));
  world.knows_costs = !draws.chance(4);
  if (!draws.chance(5)) return world;
  shape.layers_per_chunk.assign(static_cast<std::size_t>(shape.chunks()), 1);
  for (std::size_t left = world.layers.size() - shape.layers_per_chunk.size(); left > 0; --left)
    ++shape.layers_per_chunk[static_cast<std::size_t>(draws.between(0, shape.chunks() - 1))];
  return world;
}

std::string text_of(const SchedulerWorld& world) {
  std::string text = format("{}, {} layers, options: {}", to_string(world.shape), world.layers.size(),
                            conformance::to_string(world.options));
  text += world.knows_costs ? "; forward times of layers:" : "; no costs";
  for (const LayerCost& layer : world.layers)
    if (world.knows_costs) text += format(" {}", layer.forward_time);
  if (!world.shape.layers_per_chunk.empty()) text += "; layers per chunk are given";
  return text;
}

// The placement and all orders; nothing where place() or order() refuses with a UserError, as on all stages alike.
std::optional<Schedule> ask(const Scheduler& scheduler, const SchedulerWorld& world, bool last_stage_first = false) {
  Schedule schedule;
  int refused = 0;
  std::string text;
  PipelineShape placed = world.shape;
  try {
    schedule.placement = scheduler.place(world.layers, world.shape);
  } catch (const UserError&) {
    return std::nullopt;
  }
  const bool is_whole = schedule.placement.layers_of_chunk.size() == static_cast<std::size_t>(world.shape.chunks());
  if (world.knows_costs && is_whole) placed = program::with_costs(world.shape, world.layers, schedule.placement);
  schedule.orders.resize(static_cast<std::size_t>(world.shape.stages));
  for (int i = 0; i < world.shape.stages; ++i) {
    const int stage = last_stage_first ? world.shape.stages - 1 - i : i;
    try {
      schedule.orders[static_cast<std::size_t>(stage)] = scheduler.order(placed, stage);
    } catch (const UserError& error) {
      ++refused;
      text = error.what();
    }
  }
  require(refused == 0 || refused == world.shape.stages,
          format("order() refuses only {} of the stages: {}", refused, text));
  if (refused > 0) return std::nullopt;
  return schedule;
}

// By hand, without the validator: each chunk and micro-batch once forward, once backward, on the chunk's stage.
void check_actions(const PipelineShape& shape, const Schedule& schedule) {
  std::map<std::pair<int, int>, std::map<ComputeKind, int>> times;  // by chunk and micro-batch
  for (int stage = 0; stage < shape.stages; ++stage)
    for (const ComputeAction& action : schedule.orders[static_cast<std::size_t>(stage)]) {
      const std::string which = format("stage {} computes {}", stage, to_string(action));
      require(action.chunk >= 0 && action.chunk < shape.chunks() && action.micro_batch >= 0 &&
                  action.micro_batch < shape.micro_batches,
              which + ", which does not exist");
      require(schedule.placement.stage_of_chunk[static_cast<std::size_t>(action.chunk)] == stage,
              which + ", whose chunk is on another stage");
      ++times[{action.chunk, action.micro_batch}][action.kind];
    }
  for (int chunk = 0; chunk < shape.chunks(); ++chunk)
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      std::map<ComputeKind, int>& of = times[{chunk, micro_batch}];
      const int whole = of[ComputeKind::Backward], input = of[ComputeKind::BackwardInput],
                weight = of[ComputeKind::BackwardWeight];
      require(
          of[ComputeKind::Forward] == 1 &&
              ((whole == 1 && input == 0 && weight == 0) || (whole == 0 && input == 1 && weight == 1)),
          format("chunk {} computes micro-batch {} {} times forward, {} times backward, {} times for the input and {} "
                 "times for the weights; it must be once forward, and either once backward or once for each of the two",
                 chunk, micro_batch, of[ComputeKind::Forward], whole, input, weight));
    }
}

void check_weights(const Schedule& schedule) {
  for (const auto& order : schedule.orders) {
    std::map<std::pair<int, int>, int> version;
    std::map<int, int> updates;  // by chunk, so far
    for (const ComputeAction& action : order) {
      if (action.kind == ComputeKind::Update) {
        ++updates[action.chunk];
        continue;
      }
      require(action.weight_version >= 0 && action.weight_version <= updates[action.chunk],
              format("{} uses weights of {} updates; by then its chunk has made {} in this step", to_string(action),
                     action.weight_version, updates[action.chunk]));
      if (action.kind == ComputeKind::Forward) version[{action.chunk, action.micro_batch}] = action.weight_version;
      const auto forward = version.find({action.chunk, action.micro_batch});
      require(forward != version.end(), to_string(action) + " comes before its forward");
      require(forward->second == action.weight_version,
              to_string(action) + " uses another weight version than its forward, so its gradient is wrong");
    }
  }
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
              format("{} is to take gradients up to that of micro-batch {}; the last there is another",
                     to_string(action), action.micro_batch));
      taken[action.chunk].push_back(std::exchange(micro_batches, {}));
    }
    for (const auto& [chunk, micro_batches] : waiting)
      require(taken.empty() || micro_batches.empty(),
              "no update takes the gradient of chunk " + std::to_string(chunk) + ", micro-batch " +
                  (micro_batches.empty() ? "" : std::to_string(*micro_batches.begin())));
  }
  if (taken.empty()) return;
  const std::size_t of_an_update = taken.begin()->second.front().size();
  for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
    int next = 0;
    for (const std::set<int>& micro_batches : taken[chunk]) {
      require(micro_batches.size() == of_an_update && *micro_batches.begin() == next,
              format("an update of chunk {} takes {} micro-batches from {} on; updates take equally many, in order",
                     chunk, micro_batches.size(), *micro_batches.begin()));
      next = *micro_batches.rbegin() + 1;
    }
    require(next == shape.micro_batches, format("chunk {} updates by {} micro-batches only", chunk, next));
  }
}

program::LayerOptions one_parameter_a_layer(int layers) {
  program::LayerOptions options;
  options.recompute.assign(static_cast<std::size_t>(layers), false);
  for (int layer = 0; layer < layers; ++layer) {
    options.parameters.flat_parameters.push_back({10, true});
    options.parameters.flat_parameters_of_layer.push_back({layer});
  }
  return options;
}

// The engine's use of it: its validator, and for small ones the programs of all stages.
void check_by_the_engine(const std::string& name, const Scheduler& scheduler, const SchedulerWorld& world,
                         const Schedule& schedule) {
  const PipelineShape& shape = world.shape;
  const auto layers = static_cast<int>(world.layers.size());
  program::validate_placement(name, schedule.placement, shape, layers);
  program::validate_orders(name, schedule.orders, schedule.placement, shape);
  std::vector<std::optional<int>> declared;
  for (int stage = 0; stage < shape.stages; ++stage) declared.push_back(scheduler.peak_live(shape, stage));
  program::validate_peak_live(name, schedule.orders, schedule.placement, declared);
  if (shape.chunks() * shape.micro_batches > 64) return;
  const program::StepPlan plan{shape, schedule.placement, schedule.orders};
  // Copies are kept of parameters that stay: a stage that updates within the step releases none.
  const Lookahead lookahead =
      program::updates_within_step(schedule.orders) > 0 ? Lookahead{.resident = true} : Lookahead{1, 20, 0, 40};
  for (int stage = 0; stage < shape.stages; ++stage)
    lower_training(plan, one_parameter_a_layer(layers), lookahead, stage);
}

void check_sizes(const Scheduler& scheduler, const SchedulerWorld& world, const Schedule& schedule) {
  const PipelineShape& shape = world.shape;
  for (std::size_t chunk = 0; chunk < shape.layers_per_chunk.size(); ++chunk) {
    const auto [begin, end] = schedule.placement.layers_of_chunk[chunk];
    require(end - begin == shape.layers_per_chunk[chunk], format("chunk {} gets {} layers; layers_per_chunk says {}",
                                                                 chunk, end - begin, shape.layers_per_chunk[chunk]));
  }
  PipelineShape open = shape;
  open.layers_per_chunk.clear();
  try {
    scheduler.place(std::vector<LayerCost>(static_cast<std::size_t>(shape.chunks() - 1)), open);
    throw Failure("place() accepts " + std::to_string(shape.chunks() - 1) + " layers for " +
                  count(shape.chunks(), "chunk") + "; every chunk needs a layer, so it must throw a UserError");
  } catch (const UserError&) {
  }
  const int layers = static_cast<int>(world.layers.size());
  const int chunks = scheduler.chunks_per_stage(shape.stages, layers);
  const std::string asked =
      format("{}, {} layers: chunks_per_stage() asks for {}", count(shape.stages, "stage"), layers, chunks);
  require(chunks >= 1, asked + "; at least 1 is needed");
  require(chunks == scheduler.chunks_per_stage(shape.stages, layers),
          asked + ", and for another number the second time");
  if (layers >= 2 * shape.stages)
    require(chunks * shape.stages <= layers, asked + ", for which the layers are too few");
}

bool same(const std::optional<Schedule>& left, const std::optional<Schedule>& right) {
  return left.has_value() == right.has_value() &&
         (!left ||
          (left->placement.stage_of_chunk == right->placement.stage_of_chunk &&
           left->placement.layers_of_chunk == right->placement.layers_of_chunk && left->orders == right->orders));
}

// A new instance in a process of its own, with another environment.
bool same_in_a_process(Subject& subject, const SchedulerWorld& world, const Schedule& schedule) {
  const pid_t process = ::fork();
  require(process >= 0, "the kit cannot start a process");
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 2;
    try {
      ::setenv("RANK", "1", 1);
      ::setenv("LOCAL_RANK", "1", 1);
      status = same(ask(*subject.make<Scheduler>(world.options), world), schedule) ? 0 : 1;
    } catch (...) {
    }
    std::_Exit(status);
  }
  int status = 0;
  for (int tries = 0; ::waitpid(process, &status, WNOHANG) == 0; ++tries) {
    if (tries == 2000) ::kill(process, SIGKILL);
    require(tries <= 2000, "a new instance in a process of its own does not answer within 20 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(tries < 20 ? 1 : 10));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void check_purity(Subject& subject, const Scheduler& scheduler, const SchedulerWorld& world, const Schedule& schedule) {
  const auto compare = [&](const std::optional<Schedule>& again, const std::string& who) {
    require(same(again, schedule),
            who + " gives another placement or order; ranks that follow different orders deadlock");
  };
  compare(ask(scheduler, world), "the same instance, called again,");
  compare(ask(scheduler, world, true), "the same instance, asked for the last stage first,");
  SchedulerWorld larger = world;
  larger.shape = {world.shape.stages + 1, world.shape.chunks_per_stage, world.shape.micro_batches + 1};
  larger.layers.resize(larger.layers.size() + static_cast<std::size_t>(world.shape.chunks_per_stage),
                       larger.layers.back());
  ask(scheduler, larger);
  compare(ask(scheduler, world), "the same instance, asked for a larger pipeline before,");
  const MeshShape mesh{{Axis::Pipeline, world.shape.stages}, {Axis::Data, 2}};
  for (const int rank : {1, mesh.size() / 2, mesh.size() - 1})
    compare(ask(*subject.make<Scheduler>(world.options, rank, mesh), world),
            "an instance on rank " + std::to_string(rank));
  for (int process = 0; process < 2; ++process)
    require(
        same_in_a_process(subject, world, schedule),
        "an instance in another process gives another placement or order; ranks that follow different orders deadlock");
}

bool splits(const Schedule& schedule) {
  return std::ranges::any_of(schedule.orders, [](const auto& order) {
    return std::ranges::any_of(order, [](const ComputeAction& action) {
      return action.kind == ComputeKind::BackwardInput || action.kind == ComputeKind::BackwardWeight;
    });
  });
}

// Declared properties that no usual pipeline shows.
void check_declared(Subject& subject) {
  if (!subject.can(Capability::SplitsBackward)) return;
  const auto scheduler = subject.make<Scheduler>();
  for (const int chunks : {1, 2, 3}) {
    const SchedulerWorld world{{}, {4, chunks, 8}, std::vector<LayerCost>(24, {100, 10, 10, 10, 80, 100})};
    const std::optional<Schedule> schedule = ask(*scheduler, world);
    if (schedule && splits(*schedule)) return;
  }
  throw Failure(
      "the plugin declares splits_backward but splits no backward, so models that cannot split are refused needlessly");
}

// The computation of every rank at every start must not take a noticeable time. A processor's time: others' work does
// not count.
void large_pipelines_are_quick(Subject& subject) {
  const auto scheduler = subject.make<Scheduler>();
  constexpr double bound_s = 2.0;
  int taken = 0;
  for (const PipelineShape& shape : {PipelineShape{64, 1, 256}, PipelineShape{32, 2, 256}, PipelineShape{16, 4, 128}}) {
    const SchedulerWorld world{{}, shape, std::vector<LayerCost>(130, {100, 10, 10, 10, 80, 100})};
    const std::clock_t begin = std::clock();
    const std::optional<Schedule> schedule = ask(*scheduler, world);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (!schedule) continue;
    ++taken;
    require(seconds < bound_s,
            format("{}, 130 layers: placing and ordering all stages took {} s of a processor; the bound is {} s",
                   to_string(shape), seconds, bound_s));
    program::validate_orders(full_name(subject.manifest()), schedule->orders, schedule->placement, shape);
  }
  if (taken == 0) throw Skip("the plugin refuses 16 to 64 stages with 1, 2 and 4 chunks");
}

void drawn_pipelines_are_right(Subject& subject) {
  constexpr int worlds = 300;
  const std::string name = full_name(subject.manifest());
  check_declared(subject);
  search(subject, "scheduler.drawn", worlds, [&](Subject& of, Draws& draws, const Tell& tell) {
    const SchedulerWorld world = draw_pipeline(draws, of);
    tell(text_of(world));
    std::optional<fakes::LoadedPlugin<Scheduler>> scheduler;
    try {
      scheduler.emplace(
          of.make<Scheduler>(world.options, 0, MeshShape{{Axis::Pipeline, world.shape.stages}, {Axis::Data, 2}}));
    } catch (const UserError&) {
      return false;  // it takes other options
    }
    const std::optional<Schedule> schedule = ask(**scheduler, world);
    if (!schedule) return false;
    program::validate_placement(name, schedule->placement, world.shape, static_cast<int>(world.layers.size()));
    check_actions(world.shape, *schedule);
    require(of.can(Capability::SplitsBackward) || !splits(*schedule),
            "it splits a backward and does not declare splits_backward, so models that cannot split backward would be "
            "accepted");
    check_weights(*schedule);
    check_updates(world.shape, *schedule);
    check_by_the_engine(name, **scheduler, world, *schedule);
    check_sizes(**scheduler, world, *schedule);
    check_purity(of, **scheduler, world, *schedule);
    return true;
  });
}

}  // namespace

std::vector<Case> scheduler_cases() {
  return {
      {"scheduler.drawn",
       "On every drawn pipeline each chunk has layers, a stage, one forward and one backward per micro-batch, split "
       "only where the manifest says so, all stages run to the end, and every process and call gets the same answers.",
       drawn_pipelines_are_right, std::chrono::seconds(300), true},
      {"scheduler.large", "Placing and ordering 64 stages with 256 micro-batches takes a processor at most 2 s.",
       large_pipelines_are_quick},
  };
}

}  // namespace strata::conformance
