// strata_plan: what `strata plan` runs. Reads the command line.
#include <strata/deepspeed.hpp>

#include <iostream>

#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/plan/plan.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void describe(CLI::App& command, PlanArguments& arguments) {
  add_config_file(command, "config,--config", arguments.config, arguments.settings, ", e.g. --set train.micro_batch=8");
  add_data_and_precision(command, arguments.settings);
  command
      .add_option("--ranks,--nproc", arguments.ranks,
                  "Number of ranks to plan for (default: 1); none is started. With --table a list")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option(
      "--memory", arguments.memory,
      "Device memory per rank, e.g. 32GB: check that the run fits, and find the largest micro-batch that fits");
  add_format(command, arguments.format);
  command.add_flag("--table", arguments.table,
                   "Print a table of model state per rank for each model, --ranks and partitioner, instead of a plan; "
                   "required by --params, --partitioners and --bookkeeping");
  const auto a_list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  a_list(command.add_option("--params", arguments.params,
                            "Parameter counts, e.g. 7.5e9,128e9; a transformer within 1 % is chosen for each"));
  a_list(command.add_option("--model", arguments.models,
                            "Model plugin: NAME, NAME:PRESET, or NAME:FOLDER with initial weights; with --table a "
                            "list, also of NAME:FILE, a Hugging Face config.json"));
  a_list(command.add_option("--partitioners", arguments.partitioners,
                            "Partitioner plugins (default: the one in the config)"));
  a_list(command.add_option("--bookkeeping", arguments.bookkeeping,
                            "Bytes counted per parameter: zero_paper (2 for the weight, 2 for the gradient, 12 for the "
                            "master weight and Adam), fp32_gradients (4 more for an fp32 gradient), or both (default: "
                            "zero_paper; with a config, that of its precision)"));
  command.footer(
      "A plan runs the program of a training step with the config's plugins on meta tensors, which have no memory. "
      "Above 16 ranks, only the first and last rank of each pipeline stage are planned; they need the most. The memory "
      "of libraries is not counted. The search for the largest micro-batch keeps train.accumulation and changes the "
      "global batch.\n"
      "Exit status: 0; 1 if a rank needs more than --memory; 2 for wrong input.\n"
      "  strata plan run.yaml --ranks 1024 --memory 32GB\n"
      "  strata plan run.yaml --ranks 8 --set partitioner.plugin=zero3 --format json\n"
      "  strata plan --table --params 7.5e9,128e9,1e12 --ranks 1,4,16,64,256,1024 --partitioners "
      "ddp,zero1,zero2,zero3\n"
      "The transformer of --params has heads of 64 elements. Its hidden_size and layers are within 0.1 % of the count "
      "(else 1 %), with the ratio hidden_size / layers closest to 128. configs/plan/table.yaml holds the rest of the "
      "model.");
}

}  // namespace

int main(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app("Predict the memory and traffic of each rank in a step, without training", "strata plan");
  PlanArguments arguments;
  describe(app, arguments);
  CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return arguments.table ? plan_table(arguments, std::cout) : plan_run(arguments, std::cout); };
  leave(carry_out(line));
}
