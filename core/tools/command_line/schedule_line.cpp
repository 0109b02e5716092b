// schedule.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "program/timeline.hpp"
#include "tools/commands/schedule_command.hpp"

namespace strata::cli {

using plugin_host::asking_context;
using plugin_host::open_registry;

namespace {

struct ScheduleArguments {
  std::string name;
  PipelineShape shape;
  runtime::ChunkCost cost;
  std::string format = "text";
  std::string plugin_path;
};

int show_schedule(const ScheduleArguments& arguments) {
  const std::shared_ptr<plugin_host::PluginRegistry> registry = open_registry(arguments.plugin_path);
  const plugin_host::FoundPlugin& found = registry->find(PluginKind::Scheduler, arguments.name);
  const std::unique_ptr<PluginContext> context = asking_context(found);
  const std::unique_ptr<Scheduler> scheduler = registry->create<Scheduler>(arguments.name, *context);
  const ScheduleFormat format = arguments.format == "svg"    ? ScheduleFormat::Svg
                                : arguments.format == "json" ? ScheduleFormat::Json
                                                             : ScheduleFormat::Text;
  return schedule_show(found.manifest.name, *scheduler, arguments.shape, arguments.cost, format, std::cout);
}

}  // namespace

void add_schedule_command(CLI::App& app, Action& action) {
  CLI::App& schedule = *app.add_subcommand("schedule", "Draw pipeline schedules");
  static ScheduleArguments arguments;
  schedule.require_subcommand(1);
  CLI::App& show = *schedule.add_subcommand("show", "Draw a pipeline schedule and print its bubble");
  show.add_option("scheduler", arguments.name, "Name of a scheduler plugin, or the absolute path of its library")
      ->required();
  show.add_option("--stages", arguments.shape.stages, "Pipeline stages")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  show.add_option("--micro-batches", arguments.shape.micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  show.add_option("--chunks", arguments.shape.chunks_per_stage, "Chunks of layers per stage (virtual stages)")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  show.add_option("--forward", arguments.cost.forward, "Time of one forward, in any unit")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--backward-input", arguments.cost.backward_input, "Time of a backward for the input gradients")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--backward-weight", arguments.cost.backward_weight, "Time of a backward for the weight gradients")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  show.add_option("--communication", arguments.cost.communication, "Time of a transfer between stages")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  show.add_option("--format", arguments.format, "Output format")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "svg", "json"}));
  show.add_option("--plugin-path", arguments.plugin_path, "Folders to search for plugins first, separated by colons");
  show.footer(
      "  strata schedule show 1f1b --stages 4 --micro-batches 8\n"
      "  strata schedule show 1f1b --stages 4 --micro-batches 8 --format svg > 1f1b.svg");
  show.callback([&action] { action = [] { return show_schedule(arguments); }; });
}

}  // namespace strata::cli
