// train, eval and launch.
#include "tools/command_line/command_line.hpp"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/commands/launch_command.hpp"
#include "tools/commands/run_command.hpp"

namespace strata::cli {
namespace {

void add_run_options(CLI::App& command, RunArguments& run) {
  command.add_option("config,--config", run.config, "Config file: .yaml, .toml, .json, or a DeepSpeed ds_config.json")
      ->required();
  command.add_flag("--quiet-config", run.quiet_config)->group("");  // for ranks: their launcher has already printed it
  command.add_option("--set", run.settings, "Override one config value, e.g. --set train.steps=10; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_deepspeed_allow(command, run.settings);  // after --set, which replaces the whole list
  command.add_option("--nproc", run.nproc, "Number of ranks (processes) to start on this machine")
      ->check(CLI::Range(1, 4096));
  add_oversubscribe(command, run.oversubscribe);
}

void add_train(CLI::App& app, RunArguments& run, Action& action) {
  CLI::App& train = *app.add_subcommand("train", "Train a model");
  add_run_options(train, run);
  add_model_and_data(train, run.settings);
  train.add_option("--metrics", run.report.metrics_file, "Write one JSON object per step to this file");
  train
      .add_flag("--digests", run.digests,
                "Add to --metrics two layout-independent fingerprints of every parameter's gradient: a sum with "
                "pseudo-random\n"
                "signs, and the norm")
      ->needs("--metrics");
  train.add_option("--summary", run.report.summary_file, "Write one JSON object to this file at the end");
  train.add_option_function<std::string>(
      "--export",
      [&run](const std::string& folder) { run.settings.push_back("export=" + nlohmann::json(folder).dump()); },
      "Write the final weights to this new folder in Hugging Face format");
  train.add_option("--warmup-steps", run.report.warmup_steps, "First steps to leave out of the summary's timings")
      ->check(CLI::NonNegativeNumber);
  train
      .add_option_function<std::string>(
          "--resume", [&run](const std::string& from) { run.resume = from.empty() ? "latest" : from; },
          "Resume from a checkpoint: its folder, or latest (the default): the latest in checkpoint.path")
      ->expected(0, 1)
      ->type_name("[PATH|latest]");
  train.add_flag("--quiet", run.report.quiet, "Print only the summary, no progress");
  train.add_option("--turns", run.turns)->group("");  // set by `strata compare`; see tools/commands/run_in_turns.hpp
  train.footer(
      "Without --nproc, this process is one rank of the job that torchrun, mpirun or srun started, or the only rank.\n"
      "  strata train configs/quickstart.yaml --nproc 2\n"
      "  strata train run.yaml --set partitioner.plugin=ddp --set train.micro_batch=8\n"
      "  torchrun --no-python --nproc-per-node 2 strata train run.yaml\n"
      "  strata train run.yaml --resume --metrics metrics.jsonl\n"
      "SIGINT (Ctrl-C) or SIGTERM: the current step finishes, a checkpoint is saved to checkpoint.path if it is set, "
      "and the exit\n"
      "status is 130 or 143. A second signal ends the run at once. To continue, run the same command with --resume; "
      "--metrics then\n"
      "appends to its file.");
  train.callback([&] { action = [&] { return train_command(run, std::cout); }; });
}

void add_eval(CLI::App& app, RunArguments& run, Action& action) {
  CLI::App& eval = *app.add_subcommand("eval", "Compute mean loss and perplexity on a validation file");
  add_run_options(eval, run);
  const auto set_text = [&run](const std::string& key) {
    return [&run, key](const std::string& value) { run.settings.push_back(key + "=" + nlohmann::json(value).dump()); };
  };
  CLI::Option* init = eval.add_option_function<std::string>("--init", set_text("model.init"),
                                                            "Weights: a folder in Hugging Face format");
  eval.add_option("--checkpoint", run.checkpoint,
                  "Weights: a checkpoint of a training run, or the folder of its checkpoints for the latest one")
      ->excludes(init);
  eval.add_option_function<std::string>("--data", set_text("validation.path"), "Token file; sets validation.path");
  eval.add_option("--format", run.format, "Output format")->check(CLI::IsMember(table_formats))->capture_default_str();
  eval.add_flag("--quiet", run.report.quiet, "Print only the result, no progress");
  eval.footer(
      "Prints the mean loss per token, the perplexity, and the number of samples and tokens.\n"
      "  strata eval configs/quickstart.yaml --checkpoint ckpt --data val.bin --nproc 2\n"
      "  strata eval run.yaml --init hf_folder --data val.bin --format json");
  eval.callback([&] { action = [&] { return eval_command(run, std::cout); }; });
}

void add_launch(CLI::App& app, Action& action) {
  CLI::App& launch = *app.add_subcommand("launch", "Start your own C++ program on several ranks");
  static int nproc = 0;
  static bool oversubscribe = false;
  launch.add_option("--nproc", nproc, "Number of ranks (processes) to start on this machine")
      ->required()
      ->check(CLI::Range(1, 4096));
  add_oversubscribe(launch, oversubscribe);
  launch.prefix_command();
  launch.footer(
      "The program and its arguments follow the options; every rank gets the same arguments. The program trains with\n"
      "<strata/engine.hpp>. It also runs alone, as one rank, and under torchrun, mpirun or srun.\n"
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
