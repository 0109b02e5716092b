#include <spdlog/spdlog.h>
#include <strata/error.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <thread>

#include "cli/engine_plugins.hpp"
#include "cli/run_command.hpp"
#include "runtime/dry_run.hpp"
#include "runtime/group/group_factory.hpp"
#include "runtime/group/run_store.hpp"
#include "runtime/launch/launch_place.hpp"
#include "runtime/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

int train_one_rank(const RunArguments& arguments, const launch::LaunchPlace& place, std::ostream& out) {
  PreparedRun run = prepare_run(arguments, {place.size, place.launcher == "none" ? "one process" : place.launcher});
  const std::chrono::milliseconds timeout(static_cast<std::int64_t>(run.config.communicator.timeout_s * 1000.0));
  const runtime::MakeGroups make_groups = [&](runtime::PluginSet& plugins) -> std::unique_ptr<runtime::GroupProvider> {
    auto store = std::make_unique<runtime::RunStore>(place, timeout);
    std::string settings_text = arguments.request.metrics_file.empty() ? "" : "with --metrics ";
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
  const report::RunSummary summary =
      runtime::train(run.config, *run.registry, {place.rank, place.size, place.local_rank}, make_groups, arguments.request, out);
  if (place.rank == 0) out << report::summary_table(summary) << std::flush;
  return 0;
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
  runtime::check_run(run.config, *run.registry);  // what cannot run is said once, not by every rank
  launch::RankProgram program;
  program.ranks = arguments.nproc;
  program.arguments = arguments.command_line;
  return launch::run_ranks(program);
}

}  // namespace strata::cli
