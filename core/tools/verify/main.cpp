// strata_verify: what `strata verify CONFIG` runs. Reads the command line.
#include <strata/deepspeed.hpp>

#include <iostream>

#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/ranks/nproc.hpp"
#include "tools/verify/findings.hpp"
#include "tools/verify/verifying.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

struct VerifyArguments {
  verify::Run run{"", {}, 0};
  verify::Search search;
  std::string keep;  // a folder for the tokens, so that the printed commands can be run; empty: a temporary one
  std::string format = "text";
  bool quiet = false;
};

int verify_run(const VerifyArguments& arguments) {
  ranks::check_alone("strata verify");
  const verify::Findings findings = verify::verify(arguments.run, arguments.search, arguments.keep, !arguments.quiet);
  if (arguments.format == "json")
    std::cout << verify::to_json(findings).dump(2) << "\n";
  else
    std::cout << verify::to_text(findings);
  return findings.agreement.wrong ? 1 : 0;
}

void describe(CLI::App& command, VerifyArguments& arguments) {
  add_config_file(command, "config,--config", arguments.run.config, arguments.run.settings,
                  ", e.g. --set partitioner=zero3")
      ->required();
  command
      .add_option("--nproc", arguments.run.ranks,
                  "Number of ranks to start (default: parallel.pipeline x parallel.tensor x the smallest data-parallel "
                  "size, from 2 on, that the partitioner accepts)")
      ->check(CLI::Range(1, 256));
  command
      .add_option("--seconds", arguments.search.seconds,
                  "Then test similar runs for this many seconds: other meshes of up to 8 ranks, numbers of "
                  "micro-batches, layers and samples, partitioners, schedulers, option values, recomputation, offload "
                  "and step policies; a wrong run is simplified first")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--seed", arguments.search.seed, "Random seed of the runs that --seconds tests (default: 1)");
  command.add_option("--keep", arguments.keep,
                     "Keep the tokens in this folder, so that the commands printed for a wrong run can be run");
  add_format(command, arguments.format, {"text", "json"});
  command.add_flag("--quiet", arguments.quiet, "Print no progress");
  command.footer(
      "Trains a scaled-down copy of the config's model for two steps on this machine's processors, with the config's "
      "plugins and mesh, and compares it with the simplest run: one process, no partitioning, no pipeline, no offload, "
      "no recomputation. Every parameter's gradient, the gradient norm and the loss must be equal except for rounding. "
      "If they are not, the command reports the first wrong gradient, and tries without each setting in turn to find "
      "those that cause the difference. Model sizes, train.accumulation and offload folders are chosen automatically "
      "unless given by --set. The learning rate is 3e-5. GPU communicators are replaced by those of the host. The "
      "optimizer's update is not compared; `strata plugins check` checks optimizers.\n"
      "Exit status: 0 equal; 1 wrong; 2 wrong input, or a config that cannot run; 3 a run ended with an error.\n"
      "  strata verify run.yaml\n"
      "  strata verify run.yaml --set partitioner.plugin=$PWD/build/libmine.so --set parallel.tensor=2\n"
      "  strata verify run.yaml --seconds 120\n"
      "  strata verify ds_config.json --set model.plugin=llama --nproc 6");
}

}  // namespace

int main(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app("Compare a config's gradients with those of a single process", "strata verify");
  VerifyArguments arguments;
  describe(app, arguments);
  CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return verify_run(arguments); };
  leave(carry_out(line));
}
