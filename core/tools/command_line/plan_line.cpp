// plan.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/plan_command.hpp"

namespace strata::cli {

void add_plan_command(CLI::App& app, Action& action) {
  CLI::App& command =
      *app.add_subcommand("plan", "Show the memory and traffic of every rank in a step, without training");
  static PlanArguments plan;
  command.add_option("config,--config", plan.config, "Config file: .yaml, .toml, .json, or a DeepSpeed ds_config.json");
  command.add_option("--set", plan.settings, "Override one config value, e.g. --set train.micro_batch=8; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);  // first: it replaces the whole list
  add_deepspeed_allow(command, plan.settings);
  add_setting(command, "--data", "data.path", plan.settings, "Token file; sets data.path");
  add_setting(command, "--dtype", "precision.plugin", plan.settings, "Precision plugin; sets precision.plugin");
  command
      .add_option("--ranks,--nproc", plan.ranks,
                  "Number of ranks to plan for (default: 1); with --table a list. No rank is started")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option(
      "--memory", plan.memory,
      "Device memory of one rank, e.g. 32GB: check that the run fits, and find the largest micro-batch that fits");
  command.add_option("--format", plan.format, "Output format")
      ->check(CLI::IsMember(table_formats))
      ->capture_default_str();
  command.add_flag(
      "--table", plan.table,
      "Print a table of model state per rank instead of a plan: one cell per model, --ranks and partitioner. The next "
      "options need it");
  const auto a_list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  a_list(command.add_option("--params", plan.params,
                            "Parameter counts, e.g. 7.5e9,128e9; Strata picks a transformer within 1 % of each"));
  a_list(command.add_option("--model", plan.models,
                            "Model plugin: NAME, NAME:PRESET, or NAME:FOLDER, a folder of initial weights; with "
                            "--table a list, and also NAME:FILE, a Hugging Face config.json"));
  a_list(
      command.add_option("--partitioners", plan.partitioners, "Partitioner plugins (default: the one in the config)"));
  a_list(command.add_option(
      "--bookkeeping", plan.bookkeeping,
      "Bytes per parameter: zero_paper (2+2+12; the default without a config) or fp32_gradients (2+2+16), or both "
      "(default with\na config: its precision)"));
  command.footer(
      "A plan runs the step's real program with the real plugins over meta tensors. Up to 16 ranks, all are planned; "
      "above that,\n"
      "the first and last rank of each pipeline stage, which need the most. Only tensors are counted, not the memory "
      "of libraries.\n"
      "The search for the largest micro-batch keeps train.accumulation; the global batch changes with it.\n"
      "Exit status: 0; 1 if a rank needs more than --memory; 2 for wrong input.\n"
      "  strata plan run.yaml --ranks 1024 --memory 32GB\n"
      "  strata plan run.yaml --ranks 8 --set partitioner.plugin=zero3 --format json\n"
      "  strata plan --table --params 7.5e9,128e9,1e12 --ranks 1,4,16,64,256,1024 --partitioners "
      "ddp,zero1,zero2,zero3\n"
      "--params picks the shape: heads of 64 elements, and the hidden_size and layers within 0.1 % of the count (else "
      "within 1 %)\n"
      "whose ratio hidden_size / layers is nearest to 128. configs/plan/table.yaml holds the rest of the model.");
  command.callback([&action] {
    action = [] { return plan.table ? plan_table_command(plan, std::cout) : plan_command(plan, std::cout); };
  });
}

}  // namespace strata::cli
