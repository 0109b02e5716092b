#include "tools/commands/schedule.hpp"

#include <strata/error.hpp>

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "program/lower.hpp"
#include "tools/commands/command.hpp"
#include "tools/drawing/drawing.hpp"

namespace strata::cli {

namespace {

// Limits the picture to what can be read.
void require_drawable(const PipelineShape& shape) {
  constexpr std::int64_t most_actions = 100'000;
  std::int64_t actions = 1;
  for (const int factor : {shape.stages, shape.chunks_per_stage, shape.micro_batches}) {
    if (factor < 1 || factor > most_actions / actions) {
      throw UserError("a schedule of " + std::to_string(shape.stages) + " stages x " +
                      std::to_string(shape.chunks_per_stage) + " chunks x " + std::to_string(shape.micro_batches) +
                      " micro-batches cannot be drawn: each must be at least 1 and their product at most " +
                      std::to_string(most_actions));
    }
    actions *= factor;
  }
}

}  // namespace

int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, const std::string& format, std::ostream& out) {
  require_drawable(shape);
  const LayerCost layer{1, cost.forward, cost.backward_input, cost.backward_weight, 1};
  const std::vector<LayerCost> layers(static_cast<std::size_t>(shape.chunks()), layer);
  const runtime::StepPlan plan = runtime::plan_step("scheduler/" + name, scheduler, shape, layers);
  const auto costs = runtime::uniform_costs(shape.chunks(), cost);
  const runtime::ScheduleDrawing drawing{name, shape, cost, runtime::simulate(plan.orders, plan.placement, costs)};
  const auto write = format == "svg"    ? runtime::write_schedule_svg
                     : format == "json" ? runtime::write_schedule_json
                                        : runtime::write_schedule_text;
  write(drawing, out);
  return 0;
}

void add_schedule(CommandLine& line) {
  CLI::App& schedule = *line.app.add_subcommand("schedule", "Draw pipeline schedules");
  static std::string name, format = "text", plugin_path;
  static PipelineShape shape;
  static runtime::ChunkCost cost;
  schedule.require_subcommand(1);
  CLI::App& show = *schedule.add_subcommand("show", "Draw a pipeline schedule and print its bubble");
  show.add_option("scheduler", name, "Name of a scheduler plugin, or the absolute path of its library")->required();
  show.add_option("--stages", shape.stages, "Pipeline stages")->capture_default_str()->check(CLI::Range(1, 1024));
  show.add_option("--micro-batches", shape.micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  show.add_option("--chunks", shape.chunks_per_stage, "Chunks of layers per stage (virtual stages)")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  show.add_option("--forward", cost.forward, "Time of one forward, in any unit")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--backward-input", cost.backward_input, "Time of a backward for the input gradients")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--backward-weight", cost.backward_weight, "Time of a backward for the weight gradients")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--communication", cost.communication, "Time of a transfer between stages")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  add_format(show, format, {"text", "svg", "json"});
  add_plugin_path(show, plugin_path);
  show.footer(
      "  strata schedule show 1f1b --stages 4 --micro-batches 8\n"
      "  strata schedule show 1f1b --stages 4 --micro-batches 8 --format svg > 1f1b.svg");
  line.on(show, [] {
    const std::shared_ptr<plugin_host::PluginRegistry> registry = plugin_host::open_registry(plugin_path);
    const plugin_host::FoundPlugin& found = registry->find(PluginKind::Scheduler, name);
    const std::unique_ptr<PluginContext> context = plugin_host::asking_context(found);
    const std::unique_ptr<Scheduler> scheduler = registry->create<Scheduler>(name, *context);
    return schedule_show(found.manifest.name, *scheduler, shape, cost, format, std::cout);
  });
}

}  // namespace strata::cli
