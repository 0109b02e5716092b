// strata_schedule: what `strata schedule` runs. Reads the command line.
#include <strata/deepspeed.hpp>
#include <strata/error.hpp>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/dry_run.hpp"
#include "plugins/engine_plugins.hpp"
#include "resolve/resolve_run.hpp"
#include "tools/chosen/chosen_plugin.hpp"
#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/schedule/run_schedule.hpp"
#include "tools/schedule/schedule.hpp"
#include "tools/schedule/trace_file.hpp"
#include "tools/train/train.hpp"

namespace {

using namespace strata;
using namespace strata::cli;
using namespace strata::schedule;

struct ShowArguments {
  std::vector<std::string> schedulers;
  std::string format = "text";
  // Of a run.
  std::string config;
  std::vector<std::string> settings;
  std::int64_t ranks = 1;
  std::string measured;
  // Without one.
  PipelineShape shape;
  std::optional<int> chunks;
  program::ChunkCost cost;
  std::string plugin_path;
};

// Of the config's model: by each scheduler, or by the config's own.
int show_run(const ShowArguments& arguments) {
  std::vector<RunSchedule> schedules;
  std::vector<stage::LayerTime> times;
  if (!arguments.measured.empty())
    times = schedule::layer_times(schedule::read_trace(arguments.measured), arguments.measured);
  for (std::size_t i = 0; i < std::max<std::size_t>(arguments.schedulers.size(), 1); ++i) {
    std::vector<std::string> settings = arguments.settings;
    if (!arguments.schedulers.empty()) settings.push_back("scheduler.plugin=" + arguments.schedulers[i]);
    const resolve::ResolvedRun run = resolve::read_run(
        arguments.config, settings, {arguments.ranks, "--ranks", std::nullopt, /*starts_ranks=*/true});
    if (i == 0) log_deepspeed(run);
    schedules.push_back({run.config.scheduler.name, plan::step_plan(run.config, *run.registry, times)});
  }
  return show_schedules_of_run(schedules, !times.empty(), arguments.format, std::cout);
}

// Of all --set, which name options of schedulers as a config does, those of this one. Used ones are marked.
OptionTexts options_of_scheduler(const std::string& name, const OptionTexts& settings, std::vector<bool>& taken) {
  OptionTexts options;
  const std::string prefix = "scheduler." + name + ".";
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const auto& [key, value] = settings[i];
    if (!key.starts_with(prefix)) continue;
    taken[i] = true;
    options.emplace_back(key.substr(prefix.size()), value);
  }
  return options;
}

int show_shape(const ShowArguments& arguments) {
  if (arguments.schedulers.empty())
    throw UserError("schedule show: no scheduler given; give one or several, or --config for a run's own");
  const std::shared_ptr<plugins::PluginRegistry> registry = plugins::open_registry(arguments.plugin_path);
  const PipelineShape& shape = arguments.shape;
  constexpr int layers_of_stage = 4;  // of the model that a schedule without `--chunks` is asked about
  const OptionTexts settings = options_of(arguments.settings);
  std::vector<bool> taken(settings.size(), false);
  std::vector<std::unique_ptr<ChosenPlugin>> made;
  std::vector<ShownScheduler> shown;
  for (const std::string& name : arguments.schedulers) {
    const std::string own = registry->find(PluginKind::Scheduler, name).manifest.name;
    const OptionTexts options = options_of_scheduler(own, settings, taken);
    made.push_back(std::make_unique<ChosenPlugin>(*registry, PluginKind::Scheduler, name, options));
    const Scheduler& scheduler = made.back()->make<Scheduler>();
    shown.push_back(
        {own, scheduler,
         arguments.chunks.value_or(scheduler.chunks_per_stage(shape.stages, layers_of_stage * shape.stages))});
  }
  for (std::size_t i = 0; i < settings.size(); ++i)
    if (!taken[i])
      throw UserError(
          "--set {}={}: without --config only options of the schedulers that are shown can be set, as "
          "scheduler.NAME.OPTION=VALUE",
          settings[i].first, settings[i].second);
  return schedule_show(shown, shape.stages, shape.micro_batches, arguments.cost, arguments.format, std::cout);
}

void describe(CommandLine& line) {
  CLI::App& schedule = line.app;
  static ShowArguments arguments;
  schedule.require_subcommand(1);
  CLI::App& show =
      *schedule.add_subcommand("show", "Draw a pipeline schedule and print its bubble, or several and compare them");
  show.add_option("scheduler", arguments.schedulers,
                  "Scheduler plugins: names, or absolute paths of libraries (default with --config: the config's own)");
  add_format(show, arguments.format, {"text", "svg", "json", "trace"});
  CLI::Option* const config =
      add_config_file(show, "--config", arguments.config, arguments.settings,
                      ", e.g. --set parallel.pipeline=4; without --config: options of the schedulers, e.g. "
                      "--set scheduler.pipedream.version=2bw");
  show.add_option("--ranks", arguments.ranks, "Number of ranks of the config's run")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->needs(config);
  show.add_option("--measured", arguments.measured,
                  "Trace of this model under any schedule (`strata train --trace`), as the source of layer times "
                  "(default: from floating-point operations)")
      ->needs(config);
  const auto number = [&](const std::string& name, auto& value, const std::string& text, int least, int most) {
    return show.add_option(name, value, text)->check(CLI::Range(least, most))->excludes(config);
  };
  PipelineShape& shape = arguments.shape;
  number("--stages", shape.stages, "Pipeline stages", 1, 1024)->capture_default_str();
  number("--micro-batches", shape.micro_batches, "Micro-batches per step", 1, 65536)->capture_default_str();
  number("--chunks", arguments.chunks,
         "Chunks of layers per stage, i.e. virtual stages (default: the number that the scheduler requests)", 1, 64);
  const auto time = [&](const std::string& name, std::int64_t& value, const std::string& text, int least = 1) {
    number(name, value, text, least, 1000)->capture_default_str();
  };
  program::ChunkCost& cost = arguments.cost;
  time("--forward", cost.forward,
       "Time of one forward, in any unit: of a chunk, or of a whole stage if several schedulers are compared");
  time("--backward-input", cost.backward_input, "Time of one backward for the input gradients");
  time("--backward-weight", cost.backward_weight, "Time of one backward for the weight gradients");
  time("--communication", cost.communication, "Time of one transfer between stages", 0);
  add_plugin_path(show, arguments.plugin_path);
  show.footer(
      "  strata schedule show 1f1b --stages 4 --micro-batches 8\n"
      "  strata schedule show 1f1b --stages 4 --micro-batches 8 --format svg > 1f1b.svg\n"
      "  strata schedule show 1f1b --stages 4 --micro-batches 8 --format trace > 1f1b.json   (ui.perfetto.dev)\n"
      "  strata schedule show 1f1b interleaved_1f1b zero_bubble_v --stages 4 --micro-batches 8\n"
      "  strata schedule show 1f1b zero_bubble_v --config run.yaml --ranks 4 --set parallel.pipeline=4\n"
      "  strata schedule show zero_bubble_v --config run.yaml --ranks 4 --measured trace.json\n"
      "With --config, the run defines stages, micro-batches and chunks, and its model's layers define times and "
      "activations.");
  line.on(show, [] { return arguments.config.empty() ? show_shape(arguments) : show_run(arguments); });
}

}  // namespace

int main(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app("Draw pipeline schedules", "strata schedule");
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line);
  leave(carry_out(line));
}
