#include <unistd.h>
#include <strata/error.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "run/dry_run.hpp"
#include "run/launch_groups.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/train/progress.hpp"

namespace strata::cli {

namespace {

// The column names and the values of one line.
void print(const report::ValidationResult& result, const std::string& format, std::ostream& out) {
  if (format == "json") {
    out << report::to_json(result).dump(2) << std::endl;
    return;
  }
  char loss[64];
  char perplexity[64];
  std::snprintf(loss, sizeof loss, "%.6f", result.loss);
  std::snprintf(perplexity, sizeof perplexity, "%.4f", result.perplexity());
  const std::string names[] = {"loss", "perplexity", "samples", "tokens"};
  const std::string values[] = {loss, perplexity, std::to_string(result.samples), std::to_string(result.tokens)};
  const bool csv = format == "csv";
  const bool markdown = format == "markdown";
  const auto row = [&](const std::string(&cells)[4]) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string padding =
          csv ? "" : std::string(std::max(names[i].size(), values[i].size()) - cells[i].size(), ' ');
      out << (markdown ? "| " : i == 0 ? "" : csv ? "," : "  ") << padding << cells[i] << (markdown ? " " : "");
    }
    out << (markdown ? "|\n" : "\n");
  };
  row(names);
  if (markdown) out << "|---:|---:|---:|---:|\n";
  row(values);
  out << std::flush;
}

runtime::ResolvedRun read_evaluation(const RunArguments& arguments, const config::World& world) {
  runtime::ResolvedRun run = runtime::read_run(arguments.config, arguments.settings, world);
  if (run.config.validation.data.path.empty())
    throw UserError(arguments.config + ": no validation data; give --data FILE or set validation.path");
  if (run.config.model.init.empty() && arguments.checkpoint.empty())
    throw UserError(arguments.config +
                    ": no weights to evaluate; give --checkpoint PATH or --init FOLDER, or set model.init");
  return run;
}

}  // namespace

int eval_command(const RunArguments& arguments, std::ostream& out) {
  const launch::LaunchPlace place = launch::read_environment();
  if (starts_ranks(arguments, place)) {
    const runtime::ResolvedRun run = read_evaluation(arguments, config::World::started_here(arguments.nproc));
    const runtime::SavedWeights weights(run.config.model.init, arguments.checkpoint);
    runtime::check_evaluation(run.config, *run.registry, weights.model_config());  // report errors once
    return start_ranks(arguments, run);
  }
  const runtime::ResolvedRun resolved = read_evaluation(arguments, runtime::world_of(place));
  runtime::RunFiles files = runtime::open_evaluation(resolved.config, arguments.checkpoint);
  runtime::Run run(resolved, std::move(files), {place.rank, place.size, place.local_rank},
                   runtime::launch_groups(place, "evaluation "));
  run.fill();
  const bool terminal = isatty(STDERR_FILENO) == 1 && place.launcher != launch::Launcher::OpenMpi;
  report::Progress progress(std::cerr, terminal, 0, 1);
  const report::ValidationResult result = run.validate([&](std::int64_t done, std::int64_t samples) {
                                               if (place.rank == 0 && !arguments.report.quiet)
                                                 progress.validating(done, samples);
                                             })
                                              .value();
  progress.finish();
  if (place.rank == 0) print(result, arguments.format, out);
  return 0;
}

}  // namespace strata::cli
