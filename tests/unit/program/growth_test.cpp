// The passes of the program are linear in layers and in micro-batches: for every scheduler, with everything that moves
// or waits, twice as many take at most 2.3 times the work. Work is counted in basic blocks, not in seconds; a logarithm
// has the rest.
#include <strata/error.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "schedulers.hpp"

namespace {
std::int64_t blocks = 0;
}

// Called by each basic block of core/engine/program, as compiled for this test.
extern "C" void __sanitizer_cov_trace_pc() {  // NOLINT(bugprone-reserved-identifier)
  ++blocks;
}

using namespace strata;
using namespace strata::program;

namespace {

constexpr double most = 2.3;

std::vector<std::string> schedulers() {
  plugins::PluginRegistry registry(std::vector<plugins::SearchFolder>{{PLUGIN_FOLDER, "the test"}});
  std::vector<std::string> names;
  for (const plugins::FoundPlugin* const plugin : registry.list())
    if (plugin->manifest.kind == PluginKind::Scheduler) names.push_back(plugin->manifest.name);
  return names;
}

struct Size {
  int layers = 0;
  int micro_batches = 0;
};

struct Options {
  std::string name;
  Lookahead lookahead;
  bool moves = false;
  bool replicated = false;
  bool defers_updates = false;
  std::int64_t read_ahead = 0;
  config::StepPolicy policy = config::StepPolicy::Plain;
};

// Everything that a pass has a case for, on and off.
std::vector<Options> options() {
  const Lookahead resident{.resident = true};
  const Lookahead each_use{.layers = 1, .elements = 100, .reuse_distance = 0, .live_parameters = 100};
  // Of few of the layers, at either size.
  const Lookahead keeps{.layers = 4, .elements = 50, .reuse_distance = 1'000'000, .live_parameters = 100};
  const Lookahead keeps_all{.layers = 4, .elements = 200, .reuse_distance = 1'000'000, .live_parameters = 1'000'000};
  using config::StepPolicy;
  return {{.name = "resident", .lookahead = resident},
          {.name = "replicated", .lookahead = resident, .replicated = true},
          {.name = "gathered for each use", .lookahead = each_use},
          {.name = "some stay gathered", .lookahead = keeps},
          {.name = "all stay gathered", .lookahead = keeps_all},
          {.name = "moves", .lookahead = each_use, .moves = true, .replicated = true},
          {.name = "moves ahead", .lookahead = each_use, .moves = true, .read_ahead = 64},
          {.name = "moves far ahead", .lookahead = each_use, .moves = true, .read_ahead = 1'000'000},
          {.name = "moves, deferred", .lookahead = each_use, .moves = true, .defers_updates = true, .read_ahead = 64},
          {.name = "delayed", .lookahead = each_use, .moves = true, .read_ahead = 64, .policy = StepPolicy::Delayed},
          {.name = "speculative", .lookahead = resident, .policy = StepPolicy::Speculative},
          {.name = "local", .lookahead = each_use, .policy = StepPolicy::Local}};
}

LayerOptions layers_of(const Options& options, const Size& size) {
  LayerOptions layers = plain_layers(size.layers, /*recompute=*/options.moves);
  layers.policy = options.policy;
  layers.defers_updates = options.defers_updates;
  layers.updates_at_end = options.defers_updates ? 0.5 : 0.0;
  layers.read_ahead = options.read_ahead;
  if (!options.moves) return layers;
  for (FlatParameterSize& parameter : layers.parameters.flat_parameters) {
    parameter.values_leave = parameter.gradient_leaves = true;
    parameter.parameter_moves = parameter.gradient_moves = parameter.state_moves = parameter.kept_moves = 8;
  }
  layers.parameters.input_moves.assign(static_cast<std::size_t>(size.layers), 8);
  return layers;
}

// Basic blocks; none where the scheduler refuses the pipeline.
std::optional<std::int64_t> work(const std::string& scheduler, const Scheduler& plugin, const PipelineShape& shape,
                                 const Options& options, const Size& size) {
  blocks = 0;
  std::optional<StepPlan> plan;
  try {
    plan = plan_step("scheduler/" + scheduler, plugin, shape, costs_of(size.layers));
  } catch (const UserError&) {
    return {};
  }
  const bool updates = updates_within_step(plan->orders) > 0;
  const bool plain = !options.moves && options.lookahead.resident && options.policy == config::StepPolicy::Plain;
  if (updates && !plain) return {};  // a session refuses that
  LayerOptions layers = layers_of(options, size);
  if (options.replicated) {
    const auto [begin, end] = plan->placement.layers_of_chunk.front();
    for (int layer = begin; layer < end; ++layer) layers.replicated.push_back(layer);
  }
  lower_training(*plan, layers, options.lookahead, 0);
  lower_pending_updates(*plan, layers, options.lookahead, 0);
  lower_evaluation(*plan, layers, options.lookahead, 0, size.micro_batches);
  return blocks;
}

}  // namespace

TEST_CASE("the program of a step is made in time that is linear in layers and in micro-batches") {
  std::map<std::string, int> tried;
  for (const std::string& scheduler : schedulers()) {
    const std::unique_ptr<Scheduler> plugin = make_scheduler(scheduler);
    const bool all = scheduler == "1f1b" || scheduler == "gpipe";  // one with few micro-batches under way, one with all
    for (const Options& one : options())
      for (const auto& [stages, chunks] : {std::pair{1, 1}, {2, 1}, {2, 2}})
        for (const auto& [smaller, twice] : {std::pair<Size, Size>{{4, 96}, {4, 192}}, {{48, 4}, {96, 4}}}) {
          CAPTURE(scheduler, one.name, stages, chunks, smaller.layers, smaller.micro_batches, twice.layers,
                  twice.micro_batches);
          if (!all && one.name != "resident" && one.name != "some stay gathered" && one.name != "moves ahead") continue;
          if (all && stages == 1) continue;
          const auto before = work(scheduler, *plugin, {stages, chunks, smaller.micro_batches}, one, smaller);
          if (!before) continue;
          const auto after = work(scheduler, *plugin, {stages, chunks, twice.micro_batches}, one, twice);
          REQUIRE(after);
          CHECK(static_cast<double>(*after) / static_cast<double>(*before) < most);
          ++tried[scheduler];
        }
    CHECK(tried[scheduler] > 0);
  }
}
