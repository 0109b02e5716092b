#include <spdlog/spdlog.h>
#include <strata/error.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <ostream>
#include <thread>

#include "cli/engine_plugins.hpp"
#include "cli/run_command.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "runtime/dry_run.hpp"
#include "runtime/group/group_factory.hpp"
#include "runtime/group/run_store.hpp"
#include "runtime/interruption.hpp"
#include "runtime/launch/launch_place.hpp"
#include "runtime/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

// What a person who stopped a run wants to know.
std::string stopped_text(const report::RunSummary& summary, const config::RunConfig& config) {
  std::string text = "stopped by " + runtime::signal_name(summary.stopped_by) + " after step " + std::to_string(summary.steps_done) + " of " +
                     std::to_string(config.train.steps);
  if (!summary.saved_in.empty()) return text + "; saved in " + summary.saved_in + ": the same command with --resume goes on from there";
  if (summary.steps == 0) return text + "; it had made no step, so there is nothing to save";
  return text + "; nothing is saved, as checkpoint.path is empty";
}

int train_one_rank(const RunArguments& arguments, const launch::LaunchPlace& place, std::ostream& out) {
  const runtime::StopSignals signals(/*announce=*/place.rank == 0);
  PreparedRun run = prepare_run(arguments, {place.size, place.launcher == "none" ? "one process" : place.launcher});
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(run.config.communicator.timeout_s * 1000.0));
  const runtime::MakeGroups make_groups = [&](runtime::PluginSet& plugins) -> std::unique_ptr<runtime::GroupProvider> {
    auto store = std::make_unique<runtime::RunStore>(place, timeout);
    std::string settings_text = arguments.request.metrics_file.empty() ? "" : "with --metrics ";
    if (arguments.request.resume) settings_text += "with --resume " + *arguments.request.resume + " ";
    for (const config::Resolved& value : run.config.listing)
      if (value.path != "data.path" && value.path != "model.init" && value.path != "export") settings_text += value.path + "=" + value.value + ";";
    store->agree("the configs", settings_text);
    store->agree("the loaded plugins", std::to_string(plugin_host::digest(run.registry->loaded())));
    runtime::GroupSettings settings;
    settings.communicator = plugins.communicator.plugin;
    settings.rank = place.rank;
    settings.local_rank = place.local_rank;
    settings.device = at::Device(plugins.device->type());
    settings.timeout = timeout;
    settings.interface_address = place.interface_address;
    return std::make_unique<runtime::GroupFactory>(std::move(store), settings);
  };
  runtime::TrainRequest request = arguments.request;
  request.stop_requested = runtime::StopSignals::requested;
  const report::RunSummary summary =
      runtime::train(run.config, *run.registry, {place.rank, place.size, place.local_rank}, make_groups, request, out);
  if (place.rank == 0) out << report::summary_table(summary) << std::flush;
  if (summary.stopped_by == 0) return 0;
  if (place.rank == 0) std::cerr << "strata: " << stopped_text(summary, run.config) << std::endl;
  return 128 + summary.stopped_by;
}

}  // namespace

PreparedRun prepare_run(const RunArguments& arguments, const config::World& world) {
  std::vector<config::Node> layers = config::read_layers(arguments.config, arguments.settings);
  PreparedRun run;
  run.registry = open_registry(config::plugin_path(layers));
  run.config = config::resolve(std::move(layers), world, EnginePlugins(run.registry));
  return run;
}

int train_command(const RunArguments& arguments, std::ostream& out) {
  const launch::LaunchPlace place = launch::read_environment();
  if (arguments.nproc == 0 || place.launcher != "none") return train_one_rank(arguments, place, out);
  const PreparedRun run = prepare_run(arguments, {arguments.nproc, "--nproc"});
  runtime::check_start(run.config, arguments.request.resume);  // what cannot run is said once, not by every rank
  runtime::check_run(run.config, *run.registry);
  launch::RankProgram program;
  program.ranks = arguments.nproc;
  program.arguments = arguments.command_line;
  const int status = launch::run_ranks(program);
  if (!run.config.checkpoint.path.empty()) checkpoint::CheckpointFolder(run.config.checkpoint.path).clean_up();  // after killed ranks
  return status;
}

}  // namespace strata::cli
