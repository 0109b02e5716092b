// strata_schedule: what `strata schedule` runs. Reads the command line.
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin_host/engine_plugins.hpp"
#include "schedule/schedule.hpp"
#include "tools/commands/carry_out.hpp"
#include "tools/commands/leave.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void describe(CommandLine& line) {
  CLI::App& schedule = line.app;
  static std::vector<std::string> names;
  static std::string format = "text", plugin_path;
  static PipelineShape shape;
  static std::optional<int> chunks;
  static runtime::ChunkCost cost;
  schedule.require_subcommand(1);
  CLI::App& show =
      *schedule.add_subcommand("show", "Draw a pipeline schedule and print its bubble, or several and compare them");
  show.add_option("scheduler", names, "Names of scheduler plugins, or the absolute paths of their libraries")
      ->required();
  show.add_option("--stages", shape.stages, "Pipeline stages")->capture_default_str()->check(CLI::Range(1, 1024));
  show.add_option("--micro-batches", shape.micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  show.add_option("--chunks", chunks, "Chunks of layers per stage (virtual stages) [as many as the scheduler asks for]")
      ->check(CLI::Range(1, 64));
  show.add_option(
          "--forward", cost.forward,
          "Time of one forward, in any unit: of a chunk; of a whole stage where several schedulers are compared")
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
      "  strata schedule show 1f1b --stages 4 --micro-batches 8 --format svg > 1f1b.svg\n"
      "  strata schedule show 1f1b interleaved_1f1b zero_bubble_v --stages 4 --micro-batches 8");
  line.on(show, [] {
    const std::shared_ptr<plugin_host::PluginRegistry> registry = plugin_host::open_registry(plugin_path);
    constexpr int layers_of_stage = 4;  // of the model that a schedule without `--chunks` is asked about
    std::vector<std::unique_ptr<PluginContext>> contexts;
    std::vector<std::unique_ptr<Scheduler>> made;
    std::vector<ShownScheduler> shown;
    for (const std::string& name : names) {
      const plugin_host::FoundPlugin& found = registry->find(PluginKind::Scheduler, name);
      contexts.push_back(plugin_host::asking_context(found));
      const Scheduler& scheduler = *made.emplace_back(registry->create<Scheduler>(name, *contexts.back()));
      shown.push_back({found.manifest.name, scheduler,
                       chunks.value_or(scheduler.chunks_per_stage(shape.stages, layers_of_stage * shape.stages))});
    }
    return schedule_show(shown, shape.stages, shape.micro_batches, cost, format, std::cout);
  });
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Draw pipeline schedules", "strata schedule");
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line);
  leave(carry_out(line));
}
