// `strata eval`: the mean loss and perplexity of a config's weights on its validation file.
#include <unistd.h>
#include <strata/error.hpp>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "plan/dry_run.hpp"
#include "report/progress.hpp"
#include "report/run_summary.hpp"
#include "run/launch_groups.hpp"
#include "run/saved_model.hpp"
#include "text/formatted.hpp"
#include "text/table.hpp"
#include "tools/command/command.hpp"
#include "tools/ranks/nproc.hpp"
#include "tools/train/train.hpp"

namespace strata::cli {

namespace {

void print(const report::ValidationResult& result, text::TableFormat format, std::ostream& out) {
  if (format == text::TableFormat::Json) {
    out << report::to_json(result).dump(2) << std::endl;
    return;
  }
  text::print({{{"loss", true}, {"perplexity", true}, {"samples", true}, {"tokens", true}},
               {{text::formatted("%.6f", result.loss), text::formatted("%.4f", result.perplexity()),
                 std::to_string(result.samples), std::to_string(result.valid_tokens)}}},
              format, out);
}

resolve::ResolvedRun read_evaluation(const RunArguments& arguments, const std::string& checkpoint,
                                     const config::World& world) {
  resolve::ResolvedRun run = resolve::read_run(arguments.config, arguments.settings, world);
  if (run.config.validation.data.path.empty())
    throw UserError("{}: no validation data; give --data FILE or set validation.path", arguments.config);
  if (run.config.model.init.empty() && checkpoint.empty())
    throw UserError("{}: no weights to evaluate; give --checkpoint PATH or --init FOLDER, or set model.init",
                    arguments.config);
  if (!checkpoint.empty()) run::take_saved_model(run, checkpoint);
  return run;
}

int evaluate(const RunArguments& arguments, const std::string& checkpoint, text::TableFormat format,
             std::ostream& out) {
  const group::LaunchPlace place = group::read_environment();
  if (ranks::starts_ranks(arguments.nproc, place)) {
    const resolve::ResolvedRun run =
        read_evaluation(arguments, checkpoint, config::World::started_here(arguments.nproc));
    const checkpoint::SavedWeights weights(run.config.model.init, checkpoint);
    plan::check_evaluation(run.config, *run.registry, weights.model_config());  // report errors once
    return start_ranks(arguments, run);
  }
  const resolve::ResolvedRun resolved = read_evaluation(arguments, checkpoint, run::world_of(place));
  run::RunFiles files = run::open_evaluation(resolved.config, checkpoint);
  run::Run run(resolved, std::move(files), {place.rank, place.size, place.local_rank},
               run::launch_groups(place, "evaluation;"));
  run.fill();
  const bool terminal = isatty(STDERR_FILENO) == 1 && place.launcher != group::Launcher::OpenMpi;
  report::Progress progress(&std::cerr, terminal, 0, 1);
  const report::ValidationResult result = run.validate([&](std::int64_t done, std::int64_t samples) {
                                               if (place.rank == 0 && arguments.report.progress)
                                                 progress.validating(done, samples);
                                             })
                                              .value();
  progress.end_line();
  if (!std::isfinite(result.loss))
    throw UserError(
        "the loss of {} samples is {}: the weights are finite, but the model's results are not; the training diverged, "
        "or the weights are too large for {}",
        result.samples, text::formatted("%f", result.loss), resolved.config.precision.name);
  if (place.rank == 0) print(result, format, out);
  return 0;
}

}  // namespace

void add_eval(CommandLine& line) {
  CLI::App& eval = *line.app.add_subcommand("eval", "Compute mean loss and perplexity on a validation file");
  static RunArguments run;
  static std::string checkpoint, format = "table";
  add_run_options(line, eval, run);
  CLI::Option* const init =
      add_setting(eval, "--init", "model.init", run.settings, "Folder of weights in Hugging Face format");
  eval.add_option("--checkpoint", checkpoint,
                  "Checkpoint of a training run, or its folder of checkpoints for the latest one")
      ->excludes(init);
  add_setting(eval, "--data", "validation.path", run.settings, "Token file; sets validation.path");
  add_format(eval, format);
  eval.add_flag_callback(
      "--quiet", [] { run.report.progress = false; }, "Print only the result, no progress");
  eval.footer(
      "Prints the mean loss per token, the perplexity, and the number of samples and tokens.\n"
      "  strata eval configs/quickstart.yaml --checkpoint ckpt --data val.bin --nproc 2\n"
      "  strata eval run.yaml --init hf_folder --data val.bin --format json");
  line.on(eval, [] { return evaluate(run, checkpoint, text::parse_table_format(format), std::cout); });
}

}  // namespace strata::cli
