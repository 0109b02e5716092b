#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/checkpoint_folder.hpp"
#include "run/dry_run.hpp"
#include "run/launch_groups.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/commands/run_in_turns.hpp"
#include "tools/launch/run_ranks.hpp"
#include "tools/train/interruption.hpp"

namespace strata::cli {

namespace {

// True if a progress bar can be drawn on standard output. mpirun gives rank 0 a terminal but copies its output to its
// own, which may be a pipe or a file that escape codes would spoil.
bool terminal_under(const launch::LaunchPlace& place) {
  return place.launcher != launch::Launcher::OpenMpi && isatty(STDOUT_FILENO) == 1;
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

// What all ranks must have been asked alike, for the message that says they were not.
std::string asked(const RunArguments& arguments) {
  return (arguments.report.metrics_file.empty() ? "" : "with --metrics ") +
         (arguments.resume ? "with --resume " + *arguments.resume + " " : "");
}

int train_one_rank(const RunArguments& arguments, const launch::LaunchPlace& place, std::ostream& out) {
  using runtime::StopSignals;
  const bool leader = place.rank == 0;
  const bool bar = terminal_under(place) && !arguments.report.quiet;
  const StopSignals signals(!leader ? StopSignals::Answer::None
                            : bar   ? StopSignals::Answer::FreshLine
                                    : StopSignals::Answer::Line);
  const runtime::ResolvedRun resolved =
      runtime::read_run(arguments.config, arguments.settings, runtime::world_of(place));
  const config::RunConfig& config = resolved.config;
  if (leader) log_deepspeed(arguments, resolved);
  runtime::check_start(config, arguments.resume);
  if (leader && !config.export_path.empty()) checkpoint::check_export_folder(config.export_path);
  runtime::RunFiles files = runtime::open_training(config, place.rank);
  report::ReportSettings settings = arguments.report;
  settings.terminal = terminal_under(place);
  settings.before_step = [turn = Turn(arguments.turns)] { turn.wait(StopSignals::requested); };
  report::TrainingReport report(settings, config, place.rank, arguments.resume.has_value(), out);

  runtime::Run run(resolved, std::move(files), {place.rank, place.size, place.local_rank},
                   runtime::launch_groups(place, asked(arguments)));
  run.stop_when(StopSignals::requested);
  if (arguments.digests) run.digest_gradients();
  std::optional<runtime::Resumed> resumed;
  if (arguments.resume) resumed = run.resume(*arguments.resume);
  if (resumed)
    report.resumed(*resumed);
  else
    run.fill();
  const std::string saved_in = runtime::train(run, report);
  const report::RunSummary& summary = report.finish(run, saved_in);
  if (!config.export_path.empty() && summary.stopped_by == 0) run.export_weights(config.export_path);
  report.write_summary();
  if (leader) out << report::summary_table(summary) << std::flush;
  if (summary.stopped_by == 0) return 0;
  if (leader) std::cerr << "strata: " << stopped_text(summary, config) << std::endl;
  return 128 + summary.stopped_by;
}

}  // namespace

std::vector<std::string> model_settings(const std::string& model) {
  const std::size_t colon = model.find(':');
  std::vector<std::string> settings{"model.plugin=" + nlohmann::json(model.substr(0, colon)).dump()};
  if (colon == std::string::npos) return settings;
  const std::string size = model.substr(colon + 1);
  const bool folder = size.find('/') != std::string::npos || std::filesystem::is_directory(size);
  settings.push_back((folder ? "model.init=" : "model.preset=") + nlohmann::json(size).dump());
  return settings;
}

void log_deepspeed(const RunArguments& arguments, const runtime::ResolvedRun& run) {
  if (!run.translation || arguments.quiet_config || arguments.report.quiet) return;
  for (const config::DialectLine& line : run.translation->lines) spdlog::info("{}", line.one_line());
}

bool starts_ranks(const RunArguments& arguments, const launch::LaunchPlace& place) {
  return arguments.nproc > 0 && place.launcher == launch::Launcher::None;
}

int start_ranks(const RunArguments& arguments, const runtime::ResolvedRun& run) {
  launch::RankProgram program;
  program.ranks = arguments.nproc;
  program.oversubscribe = arguments.oversubscribe;
  program.arguments = arguments.command_line;
  if (run.translation) program.arguments.push_back("--quiet-config");
  if (run.translation && run.translation->automatic_batch > 0)
    program.arguments.insert(program.arguments.end(),
                             {"--set", "train.micro_batch=" + std::to_string(run.config.train.micro_batch), "--set",
                              "train.accumulation=" + std::to_string(run.config.train.accumulation)});
  return launch::run_ranks(program);
}

int train_command(const RunArguments& arguments, std::ostream& out) {
  const launch::LaunchPlace place = launch::read_environment();
  if (!starts_ranks(arguments, place)) return train_one_rank(arguments, place, out);
  const runtime::ResolvedRun run =
      runtime::read_run(arguments.config, arguments.settings, config::World::started_here(arguments.nproc));
  log_deepspeed(arguments, run);
  runtime::check_start(run.config, arguments.resume);  // report errors once, not from every rank
  runtime::check_run(run.config, *run.registry);
  const int status = start_ranks(arguments, run);
  if (!run.config.checkpoint.path.empty())
    checkpoint::CheckpointFolder(run.config.checkpoint.path).clean_up();  // after killed ranks
  return status;
}

}  // namespace strata::cli
