#include <strata/error.hpp>

#include <ostream>

#include "cli/run_command.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "runtime/dry_run.hpp"
#include "runtime/group/launch_groups.hpp"
#include "runtime/launch/launch_place.hpp"
#include "runtime/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

int train_one_rank(const RunArguments& arguments, const launch::LaunchPlace& place, std::ostream& out) {
  PreparedRun run = prepare_run(arguments, {place.size, place.launcher == "none" ? "one process" : place.launcher});
  const std::string also = arguments.request.metrics_file.empty() ? "" : "with --metrics ";
  const runtime::MakeGroups make_groups = runtime::launch_groups(place, run.config, *run.registry, also);
  const report::RunSummary summary =
      runtime::train(run.config, *run.registry, {place.rank, place.size, place.local_rank}, make_groups, arguments.request, out);
  if (place.rank == 0) out << report::summary_table(summary) << std::flush;
  return 0;
}

}  // namespace

PreparedRun prepare_run(const RunArguments& arguments, const config::World& world) {
  std::vector<config::Node> layers = config::read_layers(arguments.config, arguments.settings);
  PreparedRun run;
  run.registry = plugin_host::open_registry(config::plugin_path(layers));
  run.config = config::resolve(std::move(layers), world, plugin_host::EnginePlugins(run.registry));
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
