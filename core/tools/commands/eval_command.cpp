#include <unistd.h>
#include <strata/error.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.hpp"
#include "group/launch_place.hpp"
#include "run/dry_run.hpp"
#include "run/evaluation.hpp"
#include "run/launch_groups.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/launch/run_ranks.hpp"

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

PreparedRun prepare_evaluation(const RunArguments& arguments, const config::World& world) {
  PreparedRun run = prepare_run(arguments, world);
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
  if (arguments.nproc > 0 && place.launcher == "none") {
    const PreparedRun run = prepare_evaluation(arguments, {arguments.nproc, "--nproc", true});
    const runtime::SavedWeights weights(run.config.model.init,
                                        arguments.checkpoint);  // report errors once, not from every rank
    runtime::check_evaluation(run.config, *run.registry, weights.model_config());
    launch::RankProgram program;
    program.ranks = arguments.nproc;
    program.oversubscribe = arguments.oversubscribe;
    program.arguments = rank_arguments(arguments, run);
    return launch::run_ranks(program);
  }
  PreparedRun run = prepare_evaluation(arguments, runtime::world_of(place));
  const runtime::MakeGroups make_groups = runtime::launch_groups(place, run.config, *run.registry, "evaluation ");
  runtime::EvaluateRequest request;
  request.checkpoint = arguments.checkpoint;
  request.quiet = arguments.request.quiet;
  request.terminal = isatty(STDERR_FILENO) == 1 && place.launcher != launch::open_mpi;
  const report::ValidationResult result = runtime::evaluate(
      run.config, *run.registry, {place.rank, place.size, place.local_rank}, make_groups, request, std::cerr);
  if (place.rank == 0) print(result, arguments.format, out);
  return 0;
}

}  // namespace strata::cli
