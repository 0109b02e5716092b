// train, eval and launch.
#include "tools/command_line/command_line.hpp"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/commands/launch_command.hpp"
#include "tools/commands/run_command.hpp"

namespace strata::cli {
namespace {

void add_run_options(CLI::App& command, RunArguments& run) {
  command
      .add_option("config,--config", run.config,
                  "The run's config: .yaml, .toml or .json, or DeepSpeed's ds_config.json")
      ->required();
  command.add_flag("--quiet-config", run.quiet_config)->group("");  // of ranks whose launcher has said it
  command.add_option("--set", run.settings, "Change one value, e.g. --set train.steps=10; may be repeated")
      ->allow_extra_args(false);
  add_deepspeed_allow(command, run.settings);  // behind --set, which sets the whole list
  command.add_option("--nproc", run.nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  add_oversubscribe(command, run.oversubscribe);
}

void add_train(CLI::App& app, RunArguments& run, Action& action) {
  CLI::App& train = *app.add_subcommand("train", "Train a model as a config says");
  add_run_options(train, run);
  add_model_and_data(train, run.settings);
  train.add_option("--metrics", run.report.metrics_file, "Write one JSON object a step to this file");
  train
      .add_flag("--digests", run.digests,
                "Add to --metrics, for every parameter, two numbers that say what its gradient was at any layout: its "
                "sum with\n"
                "signs that each element's place decides, and its norm")
      ->needs("--metrics");
  train.add_option("--summary", run.report.summary_file, "Write one JSON object at the end to this file");
  train.add_option_function<std::string>(
      "--export",
      [&run](const std::string& folder) { run.settings.push_back("export=" + nlohmann::json(folder).dump()); },
      "Write the final weights to this new folder, in Hugging Face form");
  train.add_option("--warmup-steps", run.report.warmup_steps, "Steps left out of the summary's timings")
      ->check(CLI::NonNegativeNumber);
  train
      .add_option_function<std::string>(
          "--resume", [&run](const std::string& from) { run.resume = from.empty() ? "latest" : from; },
          "Go on from a checkpoint: latest (of checkpoint.path; the default), or a folder")
      ->expected(0, 1)
      ->type_name("[PATH|latest]");
  train.add_flag("--quiet", run.report.quiet, "No progress, only the summary");
  train.add_option("--turns", run.turns)->group("");  // of `strata compare`: see tools/commands/run_in_turns.hpp
  train.footer(
      "Without --nproc this process is one rank of what torchrun, mpirun or srun started, or the only one.\n"
      "  strata train configs/quickstart.yaml --nproc 2\n"
      "  strata train run.yaml --set partitioner.plugin=ddp --set train.micro_batch=8\n"
      "  torchrun --no-python --nproc-per-node 2 strata train run.yaml\n"
      "SIGINT (Ctrl-C) or SIGTERM ends the step under way, saves where checkpoint.path says and exits with 130 or 143; "
      "a second\n"
      "one ends the run at once. The same command with --resume goes on; --metrics then appends.");
  train.callback([&] { action = [&] { return train_command(run, std::cout); }; });
}

void add_eval(CLI::App& app, RunArguments& run, Action& action) {
  CLI::App& eval = *app.add_subcommand("eval", "The mean loss and perplexity of weights on a validation file");
  add_run_options(eval, run);
  const auto set_text = [&run](const std::string& key) {
    return [&run, key](const std::string& value) { run.settings.push_back(key + "=" + nlohmann::json(value).dump()); };
  };
  CLI::Option* init = eval.add_option_function<std::string>("--init", set_text("model.init"),
                                                            "The weights: a folder in Hugging Face form");
  eval.add_option("--checkpoint", run.checkpoint,
                  "The weights: a training's checkpoint, or checkpoint.path for its latest")
      ->excludes(init);
  eval.add_option_function<std::string>("--data", set_text("validation.path"),
                                        "The token file, instead of validation.path");
  eval.add_option("--format", run.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  eval.add_flag("--quiet", run.report.quiet, "No progress, only the result");
  eval.footer("  strata eval configs/quickstart.yaml --checkpoint ckpt --data val.bin --nproc 2");
  eval.callback([&] { action = [&] { return eval_command(run, std::cout); }; });
}

void add_launch(CLI::App& app, Action& action) {
  CLI::App& launch = *app.add_subcommand("launch", "Start a C++ program of yours on several ranks");
  static int nproc = 0;
  static bool oversubscribe = false;
  launch.add_option("--nproc", nproc, "Ranks to start on this machine")->required()->check(CLI::Range(1, 4096));
  add_oversubscribe(launch, oversubscribe);
  launch.prefix_command();
  launch.footer(
      "What follows the options is the program and its arguments; they go to every rank as they are. The program is "
      "one that\n"
      "trains with <strata/engine.hpp>; it also runs by itself, as one rank, and under torchrun, mpirun or srun.\n"
      "  strata launch --nproc 2 ./program program.yaml\n"
      "  torchrun --no-python --nproc-per-node 2 ./program program.yaml");
  launch.callback([&, command = &launch] {
    action = [program = command->remaining()] { return launch_command(nproc, oversubscribe, program); };
  });
}

}  // namespace

void add_training_commands(CLI::App& app, Action& action, std::vector<std::string> command_line) {
  static RunArguments run;
  run.command_line = std::move(command_line);
  add_train(app, run, action);
  add_eval(app, run, action);
  add_launch(app, action);
}

}  // namespace strata::cli
