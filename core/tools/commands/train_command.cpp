#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/checkpoint_folder.hpp"
#include "group/launch_place.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "run/dry_run.hpp"
#include "run/interruption.hpp"
#include "run/launch_groups.hpp"
#include "run/resolve_run.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/commands/run_in_turns.hpp"
#include "tools/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

// True if a progress bar can be drawn on standard output. mpirun gives rank 0 a terminal but copies its output to its
// own, which may be a pipe or a file that escape codes would spoil.
bool terminal_under(const launch::LaunchPlace& place) {
  return place.launcher != launch::open_mpi && isatty(STDOUT_FILENO) == 1;
}

// The message after a stopped run: what was saved and how to continue.
std::string stopped_text(const report::RunSummary& summary, const config::RunConfig& config) {
  std::string text = "stopped by " + runtime::signal_name(summary.stopped_by) + " after step " +
                     std::to_string(summary.steps_done) + " of " + std::to_string(config.train.steps);
  if (!summary.saved_in.empty())
    return text + "; saved in " + summary.saved_in + ": the same command with --resume goes on from there";
  if (summary.steps == 0) return text + "; it had made no step, so there is nothing to save";
  return text + "; nothing is saved, as checkpoint.path is empty";
}

int train_one_rank(const RunArguments& arguments, const launch::LaunchPlace& place, std::ostream& out) {
  using Answer = runtime::StopSignals::Answer;
  const bool bar = terminal_under(place) && !arguments.request.quiet;
  const runtime::StopSignals signals(place.rank != 0 ? Answer::None : bar ? Answer::FreshLine : Answer::Line);
  PreparedRun run = prepare_run(arguments, runtime::world_of(place));
  if (place.rank == 0) log_deepspeed(arguments, run);
  std::string also = arguments.request.metrics_file.empty() ? "" : "with --metrics ";
  if (arguments.request.resume) also += "with --resume " + *arguments.request.resume + " ";
  const runtime::MakeGroups make_groups = runtime::launch_groups(place, run.config, *run.registry, also);
  runtime::TrainRequest request = arguments.request;
  request.terminal = terminal_under(place);
  request.stop_requested = runtime::StopSignals::requested;
  request.before_step = [turn = Turn(arguments.turns)] { turn.wait(runtime::StopSignals::requested); };
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
  run.registry = plugin_host::open_registry(config::plugin_path(layers));
  runtime::ResolvedRun resolved =
      runtime::resolve_run(std::move(layers), world, *run.registry, plugin_host::EnginePlugins(run.registry));
  run.config = std::move(resolved.config);
  run.translation = std::move(resolved.translation);
  return run;
}

std::vector<std::string> model_settings(const std::string& model) {
  const std::size_t colon = model.find(':');
  std::vector<std::string> settings{"model.plugin=" + nlohmann::json(model.substr(0, colon)).dump()};
  if (colon == std::string::npos) return settings;
  const std::string size = model.substr(colon + 1);
  const bool folder = size.find('/') != std::string::npos || std::filesystem::is_directory(size);
  settings.push_back((folder ? "model.init=" : "model.preset=") + nlohmann::json(size).dump());
  return settings;
}

void log_deepspeed(const RunArguments& arguments, const PreparedRun& run) {
  if (!run.translation || arguments.quiet_config || arguments.request.quiet) return;
  for (const config::DialectLine& line : run.translation->lines) spdlog::info("{}", line.one_line());
}

std::vector<std::string> rank_arguments(const RunArguments& arguments, const PreparedRun& run) {
  std::vector<std::string> words = arguments.command_line;
  if (!run.translation) return words;
  words.push_back("--quiet-config");
  if (run.translation->automatic_batch > 0)
    words.insert(words.end(), {"--set", "train.micro_batch=" + std::to_string(run.config.train.micro_batch), "--set",
                               "train.accumulation=" + std::to_string(run.config.train.accumulation)});
  return words;
}

int train_command(const RunArguments& arguments, std::ostream& out) {
  const launch::LaunchPlace place = launch::read_environment();
  if (arguments.nproc == 0 || place.launcher != "none") return train_one_rank(arguments, place, out);
  const PreparedRun run = prepare_run(arguments, {arguments.nproc, "--nproc", true});
  log_deepspeed(arguments, run);
  runtime::check_start(run.config, arguments.request.resume);  // report errors once, not from every rank
  runtime::check_run(run.config, *run.registry);
  launch::RankProgram program;
  program.ranks = arguments.nproc;
  program.oversubscribe = arguments.oversubscribe;
  program.arguments = rank_arguments(arguments, run);
  const int status = launch::run_ranks(program);
  if (!run.config.checkpoint.path.empty())
    checkpoint::CheckpointFolder(run.config.checkpoint.path).clean_up();  // after killed ranks
  return status;
}

}  // namespace strata::cli
