#include "tools/train/train.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/weights.hpp"
#include "plan/choose_offload.hpp"
#include "plan/dry_run.hpp"
#include "resolve/unused_settings.hpp"
#include "run/launch_groups.hpp"
#include "run/run_report.hpp"
#include "run/saved_model.hpp"
#include "tools/command/command.hpp"
#include "tools/ranks/nproc.hpp"
#include "tools/ranks/run_ranks.hpp"
#include "tools/train/interruption.hpp"
#include "tools/train/step_trace.hpp"
#include "tools/train/turn.hpp"

namespace strata::cli {

namespace {

// True if a progress bar can be drawn on standard output. mpirun gives rank 0 a terminal but copies its output to its
// own, which may be a pipe or a file that escape codes would spoil.
bool terminal_under(const group::LaunchPlace& place) {
  return place.launcher != group::Launcher::OpenMpi && isatty(STDOUT_FILENO) == 1;
}

// The message after a stopped run: what was saved and how to continue.
std::string stopped_text(const run::Run& run, std::int64_t first_step, const std::string& saved_in) {
  std::string text = format("stopped by {} after step {} of {}", signal_name(run.stopped_by()), run.steps_done(),
                            run.config().train.steps);
  if (!saved_in.empty()) return text + "; saved in " + saved_in + ": run the same command with --resume to continue";
  if (run.steps_done() == first_step) return text + "; no step was completed, so there is nothing to save";
  return text + "; nothing is saved, because checkpoint.path is empty";
}

bool logs_config(const RunArguments& arguments) {
  return !arguments.quiet_config && arguments.report.progress;
}

// The arguments that must agree on all ranks, as parts that end with semicolons. Not --summary
// and --quiet, which are rank 0's alone.
std::string asked(const RunArguments& arguments) {
  const report::ReportSettings& report = arguments.report;
  const auto given = [](const char* option, const std::string& value) {
    return std::string(value.empty() ? "no " : "") + option + ";";
  };
  const std::string export_dtype = arguments.export_dtype.empty() ? "float32" : arguments.export_dtype;
  return "--export-dtype " + export_dtype + ";" + given("--metrics", report.metrics_file) +
         given("--trace", arguments.trace_file) +
         (arguments.trace_file.empty() ? "" : "--trace-steps " + std::to_string(arguments.trace_steps) + ";") +
         "--warmup-steps " + std::to_string(report.warmup_steps) + ";" + (report.digests ? "" : "no ") + "--digests;" +
         (arguments.resume ? "--resume " + *arguments.resume : "no --resume") + ";";
}

// Errors that every rank would find, reported once. Homes left open are not checked.
void check_before_ranks(const resolve::ResolvedRun& run) {
  config::RunConfig config = run.config;
  if (!std::exchange(config.offload.automatic, false)) plan::check_device_budget(config, *run.registry);
  plan::check_run(config, *run.registry);
}

// The name of the type to export in. Throws UserError if the run exports nothing, or has no source to take it from.
std::string checked_export_dtype(const RunArguments& arguments, const config::RunConfig& config,
                                 const run::RunFiles& files) {
  if (arguments.export_dtype.empty()) return "float32";
  if (config.export_path.empty())
    throw UserError("--export-dtype is {}, which has no effect without --export; give --export FOLDER",
                    arguments.export_dtype);
  checkpoint::export_type(arguments.export_dtype, files.weights ? files.weights->model_config() : "");
  return arguments.export_dtype;
}

StopSignals::Answer answer_to_signals(const RunArguments& arguments, const group::LaunchPlace& place) {
  const bool bar = terminal_under(place) && arguments.report.progress;
  return bar ? StopSignals::Answer::FreshLine : StopSignals::Answer::Line;
}

// A run's rank among runs that take turns.
class TurnTaker final : public run::TrainingObserver {
 public:
  explicit TurnTaker(const std::string& pipes) : turn_(pipes) {}
  void before_step(run::Run& /*run*/) override { turn_.wait(StopSignals::requested); }

 private:
  Turn turn_;
};

report::ReportSettings report_settings(const RunArguments& arguments, const group::LaunchPlace& place,
                                       std::ostream& out) {
  report::ReportSettings settings = arguments.report;
  settings.table = settings.progress_on = &out;
  settings.terminal = terminal_under(place);
  return settings;
}

int train_one_rank(const RunArguments& arguments, const group::LaunchPlace& place, std::ostream& out) {
  const bool leader = place.rank == 0;
  if (const std::string forgotten = ranks::forgotten_srun(place); !forgotten.empty()) spdlog::warn("{}", forgotten);
  // Under --nproc the launcher answers: it passes the signal on to its ranks.
  const StopSignals signals(leader && !ranks::is_rank_of_nproc(place) ? answer_to_signals(arguments, place)
                                                                      : StopSignals::Answer::None);
  resolve::ResolvedRun resolved = resolve::read_run(arguments.config, arguments.settings, run::world_of(place));
  const config::RunConfig& config = resolved.config;
  if (leader && logs_config(arguments)) log_deepspeed(resolved);
  if (!arguments.quiet_config) resolve::check_memory_budget(resolved);  // its launcher has, and chose the micro-batch
  run::check_resume(resolved, arguments.resume);
  TurnTaker turn(arguments.turns);
  if (leader) report::check_outside_export(config, "--trace", arguments.trace_file);
  StepTrace trace(arguments.trace_file, place.rank);
  run::RunReport report(report_settings(arguments, place, out), config, place.rank);
  report.check_apart(trace.file());
  if (const std::string earlier = report.earlier_run("--resume"); !earlier.empty() && !arguments.resume)
    throw UserError(earlier);
  run::RunFiles files = run::open_training(config, place.rank);
  const std::string export_dtype = checked_export_dtype(arguments, config, files);
  const stage::RankNumbers rank{place.rank, place.size, place.local_rank};
  const stage::MakeGroups make_groups = run::launch_groups(place, asked(arguments));
  const std::optional<double> predicted_step_s = plan::settle_offload(resolved, rank, std::max(place.local_size, 1),
                                                                      make_groups, leader && arguments.report.progress);

  run::Run run(resolved, std::move(files), rank, make_groups);
  run.stop_when(StopSignals::requested);
  run.try_writing(config.export_path, export_dtype);
  std::optional<checkpoint::Resumed> resumed;
  if (arguments.resume) resumed = run::resume(run, resolved, *arguments.resume);
  if (!resumed)
    run.fill();
  else if (leader && arguments.report.progress)
    out << "resumed from " << resumed->folder << " after step " << resumed->step << std::endl;
  const std::int64_t first_step = run.steps_done();
  report.begin(run);
  trace.begin(run, arguments.report.warmup_steps, arguments.trace_steps);
  std::vector<run::TrainingObserver*> observers{&trace, &report, &turn};
  if (arguments.observer != nullptr) observers.push_back(arguments.observer);
  const std::string saved_in = run::train(run, observers);
  trace.finish(run);
  report.end(run, saved_in, predicted_step_s);
  if (!config.export_path.empty() && run.stopped_by() == 0) run.export_weights(config.export_path, export_dtype);
  report.finish();
  if (run.stopped_by() == 0) return 0;
  if (leader) std::cerr << "strata: " << stopped_text(run, first_step, saved_in) << std::endl;
  return 128 + run.stopped_by();
}

}  // namespace

void add_run_options(CommandLine& line, CLI::App& command, RunArguments& run) {
  run.command_line = line.words;
  add_config_file(command, "config,--config", run.config, run.settings, ", e.g. --set train.steps=10")->required();
  command.add_flag("--quiet-config", run.quiet_config)->group("");  // for ranks: their launcher has already printed it
  add_nproc(command, run.nproc, run.oversubscribe);
}

void log_deepspeed(const resolve::ResolvedRun& run) {
  if (!run.translation) return;
  for (const resolve::DialectLine& line : run.translation->lines) spdlog::info("{}", line.one_line());
}

int start_ranks(const RunArguments& arguments, const resolve::ResolvedRun& run, const std::string& answer) {
  ranks::RankProgram program;
  program.ranks = arguments.nproc;
  program.oversubscribe = arguments.oversubscribe;
  program.arguments = arguments.command_line;
  program.answer = answer;
  if (run.translation) program.arguments.push_back("--quiet-config");
  if (run.translation && run.translation->automatic_batch > 0)
    program.arguments.insert(program.arguments.end(),
                             {"--set", "train.micro_batch=" + std::to_string(run.config.train.micro_batch), "--set",
                              "train.accumulation=" + std::to_string(run.config.train.accumulation)});
  return ranks::run_ranks(program);
}

int train_command(const RunArguments& arguments, std::ostream& out) {
  const group::LaunchPlace place = group::read_environment();
  if (!ranks::starts_ranks(arguments.nproc, place)) return train_one_rank(arguments, place, out);
  const resolve::ResolvedRun run =
      resolve::read_run(arguments.config, arguments.settings, config::World::started_here(arguments.nproc));
  if (logs_config(arguments)) log_deepspeed(run);
  resolve::check_memory_budget(run);
  run::check_resume(run, arguments.resume);  // report errors once, not from every rank
  check_before_ranks(run);
  const int status =
      start_ranks(arguments, run, StopSignals::text_of(answer_to_signals(arguments, group::LaunchPlace{})));
  if (!run.config.checkpoint.path.empty())
    checkpoint::CheckpointFolder(run.config.checkpoint.path).clean_up();  // after killed ranks
  return status;
}

void add_train(CommandLine& line) {
  CLI::App& train = *line.app.add_subcommand("train", "Train a model");
  static RunArguments run;
  add_run_options(line, train, run);
  add_model_and_data(train, run.settings);
  train.add_option("--metrics", run.report.metrics_file,
                   "Write one JSON object per step to this file; with --resume, continue the file of the previous run");
  train
      .add_flag("--digests", run.report.digests,
                "Add two layout-independent fingerprints of every parameter's gradient to --metrics: a sum with "
                "pseudo-random signs, and the norm")
      ->needs("--metrics");
  train.add_option("--summary", run.report.summary_file,
                   "Write one JSON object to this file at the end, replacing an earlier summary");
  add_setting(train, "--export", "export", run.settings,
              "Write the final weights to this new folder in Hugging Face format");
  train
      .add_option("--export-dtype", run.export_dtype,
                  "Type of the weights written by --export (default: float32); source: the type in model.init")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "source"}));
  CLI::Option* const trace = train.add_option("--trace", run.trace_file,
                                              "Write a timeline of every rank, instruction by instruction, to this "
                                              "file, for `strata trace FILE` or ui.perfetto.dev");
  train.add_option("--trace-steps", run.trace_steps, "Number of steps to trace, after the warm-up")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->needs(trace);
  train
      .add_option("--warmup-steps", run.report.warmup_steps,
                  "Number of first steps to exclude from the summary's timings and from the trace")
      ->check(CLI::NonNegativeNumber);
  train
      .add_option_function<std::string>(
          "--resume", [](const std::string& from) { run.resume = from.empty() ? "latest" : from; },
          "Resume from a checkpoint: its folder, or latest (the default) for the newest one in checkpoint.path")
      ->expected(0, 1)
      ->type_name("[PATH|latest]");
  train.add_flag_callback(
      "--quiet", [] { run.report.progress = false; }, "Print only the summary, no progress");
  train.add_option("--turns", run.turns)->group("");  // set by `strata compare`; see tools/train/turn.hpp
  train.footer(
      "Without --nproc, this process is one rank of the job started by torchrun, mpirun or srun, or the only rank.\n"
      "  strata train configs/quickstart.yaml --nproc 2\n"
      "  strata train run.yaml --set partitioner.plugin=ddp --set train.micro_batch=8\n"
      "  torchrun --no-python --nproc-per-node 2 strata train run.yaml\n"
      "  strata train run.yaml --resume --metrics metrics.jsonl\n"
      "On SIGINT (Ctrl-C) or SIGTERM, the current step finishes, a checkpoint is saved if checkpoint.path is set, and "
      "the exit status is 130 or 143. A second signal ends the run at once. To continue, run the same command with "
      "--resume; --metrics and metrics.csv keep their lines up to the checkpoint's step. Without --resume, files of an "
      "earlier run are not overwritten. All output files and folders are tested before the first step.");
  line.on(train, [] { return train_command(run, std::cout); });
}

}  // namespace strata::cli
