// plan.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/plan_command.hpp"

namespace strata::cli {

void add_plan_command(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("plan", "What every rank will hold and send in a step, without running it");
  static PlanArguments plan;
  command.add_option("config,--config", plan.config,
                     "The run's config: .yaml, .toml or .json, or DeepSpeed's ds_config.json");
  command.add_option("--set", plan.settings, "Change one value, e.g. --set train.micro_batch=8; may be repeated")
      ->allow_extra_args(false);  // first: it sets the whole list
  add_deepspeed_allow(command, plan.settings);
  add_setting(command, "--data", "data.path", plan.settings, "The token file, as data.path");
  add_setting(command, "--dtype", "precision.plugin", plan.settings, "The precision, as precision.plugin");
  command.add_option("--ranks,--nproc", plan.ranks, "Ranks of the run; none is started (default: 1)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option(
      "--memory", plan.memory,
      "Memory of one rank's device, e.g. 32GB: say whether it fits, and the largest micro-batch that does");
  command.add_option("--format", plan.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  command.add_flag(
      "--table", plan.table,
      "Instead the model state of a rank, for every model, number of ranks and partitioner of these lists:");
  const auto a_list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  a_list(command.add_option("--params", plan.params,
                            "Sizes of models, e.g. 7.5e9,128e9: transformers shaped to within 1 % of them"));
  a_list(command.add_option("--model", plan.models,
                            "The model plugin: NAME, NAME:PRESET, or NAME:FOLDER of initial weights; in a table "
                            "several, and NAME:FILE of a config.json too"));
  a_list(command.add_option("--partitioners", plan.partitioners, "Partitioner plugins (default: the config's)"));
  a_list(command.add_option(
      "--bookkeeping", plan.bookkeeping,
      "zero_paper (2+2+12 bytes a parameter; the default without a config), fp32_gradients (2+2+16), or both; "
      "else the config's precision"));
  command.footer(
      "A plan interprets the real program of the step, with the real plugins, over tensors without memory. Up to 16 "
      "ranks are all planned;\n"
      "of more, the first and the last of each pipeline stage, which the others do not exceed. Nothing that libraries "
      "take beside\n"
      "tensors is counted. The largest micro-batch keeps the config's accumulation; the global batch follows.\n"
      "Exit status: 0; 1 with --memory when a rank needs more than that; 2 when something is wrong with what was "
      "given.\n"
      "  strata plan run.yaml --ranks 1024 --memory 32GB\n"
      "  strata plan --table --params 7.5e9,128e9,1e12 --ranks 1,4,16,64,256,1024 --partitioners "
      "ddp,zero1,zero2,zero3\n"
      "The shape of --params: heads of 64 elements; of the widths and numbers of layers that come within 0.1 % (or, "
      "where none does, 1 %)\n"
      "the ones whose hidden_size / layers is nearest 128. What else the model is made of stands in "
      "configs/plan/table.yaml.");
  command.callback([&action] {
    action = [] { return plan.table ? plan_table_command(plan, std::cout) : plan_command(plan, std::cout); };
  });
}

}  // namespace strata::cli
