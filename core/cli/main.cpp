// The `strata` command: reads the command line, calls the command, and turns errors into one line and an exit status.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_command.hpp"
#include "cli/compare_command.hpp"
#include "cli/config_command.hpp"
#include "cli/data_command.hpp"
#include "cli/doctor_command.hpp"
#include "cli/launch_command.hpp"
#include "cli/plan_command.hpp"
#include "cli/plugins_command.hpp"
#include "cli/run_command.hpp"
#include "cli/schedule_command.hpp"
#include "data/token_format.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "runtime/program/timeline.hpp"
#include "runtime/resolve_run.hpp"

namespace {

using namespace strata;
using namespace strata::cli;
using plugin_host::asking_context;
using plugin_host::EnginePlugins;
using plugin_host::open_registry;

// What the chosen subcommand does; set while the command line is read, called after it.
using Action = std::function<int()>;

// Arguments live as long as the process: CLI11 keeps references to them.
struct Arguments {
  RunArguments run;
  CompareArguments compare;
  PlanArguments plan;
  ConfigShow config;
  std::string convert_format;
  std::string convert_output;
  CheckpointArguments checkpoint;
  DataPackOptions pack;
  DataInfoOptions info;
  DataShowOptions show;
  std::string plugin_path;
  std::string format = "table";
  std::string plugin;
  bool all = false;
  std::string schedule;
  PipelineShape shape;
  runtime::ChunkCost cost;
  std::string schedule_format = "text";
  std::string log_level = "info";
};

const std::vector<std::string> table_formats{"table", "markdown", "csv", "json"};

// A setting for each option that is another spelling of one.
void add_setting(CLI::App& command, const std::string& option, const std::string& key, std::vector<std::string>& settings, const std::string& text) {
  command.add_option_function<std::string>(
      option, [&settings, key](const std::string& value) { settings.push_back(key + "=" + nlohmann::json(value).dump()); }, text);
}

// The keys whose refusal is waived; each use of --allow adds to them.
void add_deepspeed_allow(CLI::App& command, std::vector<std::string>& settings) {
  command
      .add_option_function<std::vector<std::string>>(
          "--allow", [&settings](const std::vector<std::string>& keys) { settings.push_back("deepspeed_allow=" + nlohmann::json(keys).dump()); },
          "Run without what this key of a ds_config asks for, where training is the same; may be repeated")
      ->allow_extra_args(false);
}

void add_model_and_data(CLI::App& command, std::vector<std::string>& settings) {
  command.add_option_function<std::string>(
      "--model",
      [&settings](const std::string& value) {
        for (const std::string& setting : model_settings(value)) settings.push_back(setting);
      },
      "The model plugin: NAME, NAME:PRESET, or NAME:FOLDER of initial weights in Hugging Face form");
  add_setting(command, "--data", "data.path", settings, "The token file, as data.path");
  add_setting(command, "--dtype", "precision.plugin", settings, "The precision, as precision.plugin");
}

void add_run_options(CLI::App& command, RunArguments& run) {
  command.add_option("config,--config", run.config, "The run's config: .yaml, .toml or .json, or DeepSpeed's ds_config.json")->required();
  command.add_flag("--quiet-config", run.quiet_config)->group("");  // of ranks whose launcher has said it
  command.add_option("--set", run.settings, "Change one value, e.g. --set train.steps=10; may be repeated")->allow_extra_args(false);
  add_deepspeed_allow(command, run.settings);  // behind --set, which sets the whole list
  command.add_option("--nproc", run.nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
}

void add_train(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& train = *app.add_subcommand("train", "Train a model as a config says");
  RunArguments& run = arguments.run;
  add_run_options(train, run);
  add_model_and_data(train, run.settings);
  train.add_option("--metrics", run.request.metrics_file, "Write one JSON object a step to this file");
  train.add_flag("--digests", run.request.digests,
                 "Add to --metrics, for every parameter, two numbers that say what its gradient was at any layout: its sum with\n"
                 "signs that each element's place decides, and its norm")
      ->needs("--metrics");
  train.add_option("--summary", run.request.summary_file, "Write one JSON object at the end to this file");
  train.add_option_function<std::string>(
      "--export", [&run](const std::string& folder) { run.settings.push_back("export=" + nlohmann::json(folder).dump()); },
      "Write the final weights to this new folder, in Hugging Face form");
  train.add_option("--warmup-steps", run.request.warmup_steps, "Steps left out of the summary's timings")->check(CLI::NonNegativeNumber);
  train.add_option_function<std::string>(
           "--resume", [&run](const std::string& from) { run.request.resume = from.empty() ? "latest" : from; },
           "Go on from a checkpoint: latest (of checkpoint.path; the default), or a folder")
      ->expected(0, 1)
      ->type_name("[PATH|latest]");
  train.add_flag("--quiet", run.request.quiet, "No progress, only the summary");
  train.footer("Without --nproc this process is one rank of what torchrun, mpirun or srun started, or the only one.\n"
               "  strata train configs/quickstart.yaml --nproc 2\n"
               "  strata train run.yaml --set partitioner.plugin=ddp --set train.micro_batch=8\n"
               "  torchrun --no-python --nproc-per-node 2 strata train run.yaml\n"
               "SIGINT (Ctrl-C) or SIGTERM ends the step under way, saves where checkpoint.path says and exits with 130 or 143; a second\n"
               "one ends the run at once. The same command with --resume goes on; --metrics then appends.");
  train.callback([&] { action = [&] { return train_command(arguments.run, std::cout); }; });

  CLI::App& eval = *app.add_subcommand("eval", "The mean loss and perplexity of weights on a validation file");
  add_run_options(eval, run);
  const auto set_text = [&run](const std::string& key) {
    return [&run, key](const std::string& value) { run.settings.push_back(key + "=" + nlohmann::json(value).dump()); };
  };
  CLI::Option* init =
      eval.add_option_function<std::string>("--init", set_text("model.init"), "The weights: a folder in Hugging Face form");
  eval.add_option("--checkpoint", run.checkpoint, "The weights: a training's checkpoint, or checkpoint.path for its latest")->excludes(init);
  eval.add_option_function<std::string>("--data", set_text("validation.path"), "The token file, instead of validation.path");
  eval.add_option("--format", run.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  eval.add_flag("--quiet", run.request.quiet, "No progress, only the result");
  eval.footer("  strata eval configs/quickstart.yaml --checkpoint ckpt --data val.bin --nproc 2");
  eval.callback([&] { action = [&] { return eval_command(arguments.run, std::cout); }; });
}

void add_plan(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& command = *app.add_subcommand("plan", "What every rank will hold and send in a step, without running it");
  PlanArguments& plan = arguments.plan;
  command.add_option("config,--config", plan.config, "The run's config: .yaml, .toml or .json, or DeepSpeed's ds_config.json");
  command.add_option("--set", plan.settings, "Change one value, e.g. --set train.micro_batch=8; may be repeated")->allow_extra_args(false);  // first: it sets the whole list
  add_deepspeed_allow(command, plan.settings);
  add_setting(command, "--data", "data.path", plan.settings, "The token file, as data.path");
  add_setting(command, "--dtype", "precision.plugin", plan.settings, "The precision, as precision.plugin");
  command.add_option("--ranks,--nproc", plan.ranks, "Ranks of the run; none is started (default: 1)")->delimiter(',')->allow_extra_args(false);
  command.add_option("--memory", plan.memory, "Memory of one rank's device, e.g. 32GB: say whether it fits, and the largest micro-batch that does");
  command.add_option("--format", plan.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  command.add_flag("--table", plan.table, "Instead the model state of a rank, for every model, number of ranks and partitioner of these lists:");
  const auto a_list = [](CLI::Option* option) { option->delimiter(',')->allow_extra_args(false); };
  a_list(command.add_option("--params", plan.params, "Sizes of models, e.g. 7.5e9,128e9: transformers shaped to within 1 % of them"));
  a_list(command.add_option("--model", plan.models, "The model plugin: NAME, NAME:PRESET, or NAME:FOLDER of initial weights; in a table several, and NAME:FILE of a config.json too"));
  a_list(command.add_option("--partitioners", plan.partitioners, "Partitioner plugins (default: the config's)"));
  a_list(command.add_option("--bookkeeping", plan.bookkeeping,
                                "zero_paper (2+2+12 bytes a parameter; the default without a config), fp32_gradients (2+2+16), or both; "
                                "else the config's precision"));
  command.footer(
      "A plan interprets the real program of the step, with the real plugins, over tensors without memory. Up to 16 ranks are all planned;\n"
      "of more, the first and the last of each pipeline stage, which the others do not exceed. Nothing that libraries take beside\n"
      "tensors is counted. The largest micro-batch keeps the config's accumulation; the global batch follows.\n"
      "Exit status: 0; 1 with --memory when a rank needs more than that; 2 when something is wrong with what was given.\n"
      "  strata plan run.yaml --ranks 1024 --memory 32GB\n"
      "  strata plan --table --params 7.5e9,128e9,1e12 --ranks 1,4,16,64,256,1024 --partitioners ddp,zero1,zero2,zero3\n"
      "The shape of --params: heads of 64 elements; of the widths and numbers of layers that come within 0.1 % (or, where none does, 1 %)\n"
      "the ones whose hidden_size / layers is nearest 128. What else the model is made of stands in configs/plan/table.yaml.");
  command.callback([&] {
    action = [&] { return arguments.plan.table ? plan_table_command(arguments.plan, std::cout) : plan_command(arguments.plan, std::cout); };
  });
}

void add_compare(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& command = *app.add_subcommand("compare", "Train with one choice varied, in turns, and print what differs");
  CompareArguments& compare = arguments.compare;
  command.add_option("configs", compare.configs, "The run's config: .yaml, .toml or .json; each of several is a variant")->required();
  command
      .add_option("--vary", compare.vary,
                  "KEY=A,B: a key and its values; the first is what the others are compared with; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--variant", compare.variants, "\"KEY=A KEY=B\": the settings of one variant, the first is the baseline's; repeat it")
      ->allow_extra_args(false);
  command.add_option("--set", compare.settings, "Change one value for all; may be repeated")->allow_extra_args(false);
  command.add_option("--nproc", compare.nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  command.add_option("--rounds", compare.rounds, "Rounds, of two timed runs of each; below 4 nothing is said of which is slower")->check(CLI::Range(1, 1000));
  command.add_option("--steps", compare.steps, "Timed steps of a run")->check(CLI::Range(1, 1000000));
  command.add_option("--warmup-steps", compare.warmup_steps, "Steps before them")->check(CLI::Range(0, 1000000));
  command.add_option("--tolerance", compare.tolerance, "Numbers closer than this, relatively, count as equal; when not given,\nwhat the precisions declare, or 1e-5")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--format", compare.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  command.add_option("--html", compare.html, "Write a page with the table, the losses' curves and bars to this file");
  command.add_flag("--quiet", compare.quiet, "No progress");
  command.footer(
      "Times are compared by pairs of runs of one round, with a signed-rank test at 1 %; a machine that grows slower "
      "meets all alike.\n"
      "  strata compare configs/quickstart.yaml --nproc 2 --vary partitioner.plugin=ddp,zero3\n"
      "  strata compare configs/report/stages.yaml --nproc 2 --set data.path=train.bin --html stages.html\n"
      "  strata compare run.yaml --variant 'parallel.pipeline=1' --variant 'parallel.pipeline=2 scheduler.plugin=1f1b'\n"
      "  strata compare run.yaml --vary partitioner.plugin=zero3,$PWD/build/libmine.so --format markdown");
  command.callback([&] { action = [&] { return compare_command(arguments.compare, std::cout); }; });
}

void add_launch(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& launch = *app.add_subcommand("launch", "Start a C++ program of yours on several ranks");
  launch.add_option("--nproc", arguments.run.nproc, "Ranks to start on this machine")->required()->check(CLI::Range(1, 4096));
  launch.prefix_command();
  launch.footer("What follows the options is the program and its arguments; they go to every rank as they are. The program is one that\n"
                "trains with <strata/engine.hpp>; it also runs by itself, as one rank, and under torchrun, mpirun or srun.\n"
                "  strata launch --nproc 2 ./program program.yaml\n"
                "  torchrun --no-python --nproc-per-node 2 ./program program.yaml");
  launch.callback([&, command = &launch] {
    action = [&arguments, program = command->remaining()] { return launch_command(arguments.run.nproc, program); };
  });
}

void add_plugins(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& plugins = *app.add_subcommand("plugins", "The strategies there are, and their options");
  plugins.require_subcommand(1);
  plugins.add_option("--plugin-path", arguments.plugin_path, "Folders to search first, separated by colons");
  CLI::App& list = *plugins.add_subcommand("list", "Every plugin on the search path; nothing is loaded");
  list.add_option("--format", arguments.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  list.callback([&] { action = [&] { return plugins_list(*open_registry(arguments.plugin_path), arguments.format, std::cout); }; });
  CLI::App& show = *plugins.add_subcommand("show", "One plugin and its options");
  show.add_option("plugin", arguments.plugin, "KIND/NAME, or the absolute path of a library");
  show.add_flag("--all", arguments.all, "All of them: the option reference");
  show.add_option("--format", arguments.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  show.callback([&] {
    action = [&] { return plugins_show(*open_registry(arguments.plugin_path), arguments.plugin, arguments.all, arguments.format, std::cout); };
  });
}

int show_schedule(const Arguments& arguments) {
  const std::shared_ptr<plugin_host::PluginRegistry> registry = open_registry(arguments.plugin_path);
  const plugin_host::FoundPlugin& found = registry->find(PluginKind::Scheduler, arguments.schedule);
  const std::unique_ptr<PluginContext> context = asking_context(found);
  const std::unique_ptr<Scheduler> scheduler = registry->create<Scheduler>(arguments.schedule, *context);
  const ScheduleFormat format = arguments.schedule_format == "svg"    ? ScheduleFormat::Svg
                                : arguments.schedule_format == "json" ? ScheduleFormat::Json
                                                                      : ScheduleFormat::Text;
  return schedule_show(found.manifest.name, *scheduler, arguments.shape, arguments.cost, format, std::cout);
}

void add_schedule(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& schedule = *app.add_subcommand("schedule", "Pipeline schedules");
  schedule.require_subcommand(1);
  CLI::App& show = *schedule.add_subcommand("show", "Draw a schedule and its bubble");
  show.add_option("scheduler", arguments.schedule, "A scheduler plugin's name, or the absolute path of its library")->required();
  show.add_option("--stages", arguments.shape.stages, "Pipeline stages")->check(CLI::Range(1, 1024));
  show.add_option("--micro-batches", arguments.shape.micro_batches, "Micro-batches a step")->check(CLI::Range(1, 65536));
  show.add_option("--chunks", arguments.shape.chunks_per_stage, "Chunks of layers per stage")->check(CLI::Range(1, 64));
  show.add_option("--forward", arguments.cost.forward, "Time of one forward, any unit")->check(CLI::Range(1, 1000));
  show.add_option("--backward-input", arguments.cost.backward_input, "Time of the backward to the inputs")->check(CLI::Range(1, 1000));
  show.add_option("--backward-weight", arguments.cost.backward_weight, "Time of the backward to the weights")->check(CLI::Range(1, 1000));
  show.add_option("--communication", arguments.cost.communication, "Time until what is sent arrives")->check(CLI::Range(0, 1000));
  show.add_option("--format", arguments.schedule_format, "text, svg or json")->check(CLI::IsMember({"text", "svg", "json"}));
  show.add_option("--plugin-path", arguments.plugin_path, "Folders to search first, separated by colons");
  show.callback([&] { action = [&] { return show_schedule(arguments); }; });
}

void add_config_options(CLI::App& command, ConfigShow& config) {
  command.add_option("config", config.file, "The config: .yaml, .toml or .json, or DeepSpeed's ds_config.json")->required();
  command.add_option("--set", config.settings, "Change one value; may be repeated")->allow_extra_args(false);
  add_deepspeed_allow(command, config.settings);
  add_model_and_data(command, config.settings);
  command
      .add_option_function<int>(
          "--nproc", [&config](int ranks) { config.world = {ranks, "--nproc"}; }, "Ranks of the run")
      ->check(CLI::Range(1, 1 << 20));
}

void add_config(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& config = *app.add_subcommand("config", "Configs");
  config.require_subcommand(1);
  CLI::App& show = *config.add_subcommand("show", "Every value of a config and where it comes from");
  add_config_options(show, arguments.config);
  show.add_option("--format", arguments.config.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  show.add_flag("--lr", arguments.config.learning_rate, "The learning rate of every step instead");
  const ResolveConfig resolve = [](const std::vector<config::Node>& layers, const config::World& world) {
    const auto registry = open_registry(config::plugin_path(layers));
    return runtime::resolve_run(layers, world, *registry, EnginePlugins(registry), static_cast<int>(world.size)).config;
  };
  show.callback([&arguments, &action, resolve] {
    action = [&arguments, resolve] { return config_show(arguments.config, resolve, std::cout), 0; };
  });
  CLI::App& convert = *config.add_subcommand("convert", "Write a config, or what a ds_config.json means, in YAML or TOML");
  add_config_options(convert, arguments.config);
  convert.add_option("--format", arguments.convert_format, "yaml, toml or json; else what FILE's name says, or yaml")
      ->check(CLI::IsMember({"yaml", "toml", "json"}));
  convert.add_option("-o,--output", arguments.convert_output, "The file to write");
  convert.callback([&] {
    action = [&] {
      const EnginePlugins plugins(open_registry(""));
      return config_convert(arguments.config, plugins, arguments.convert_format, arguments.convert_output, std::cout, std::cerr), 0;
    };
  });
}

void add_data_file(CLI::App& command, DataFile& file) {
  command.add_option("file", file.path, "The token file; or a pattern of several, or megatron's PREFIX of .bin and .idx")->required();
  command.add_option("--data-format", file.format, "nanogpt, llm.c or megatron, as data.format; else what the file itself speaks for")
      ->check(CLI::IsMember(data::token_formats()));
  command.add_option("--width", file.width, "nanogpt: bits of a token, u16 or u32")->check(CLI::IsMember({"u16", "u32"}));
}

void add_data(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& data = *app.add_subcommand("data", "Token files");
  data.require_subcommand(1);
  CLI::App& pack = *data.add_subcommand("pack", "Turn text files into tokens: each byte is one");
  pack.add_option("inputs", arguments.pack.inputs, "Files and folders; of a .jsonl file the text in each line's object")->required();
  pack.add_option("-o,--output", arguments.pack.output, "The token file to write")->required();
  pack.add_option("--width", arguments.pack.width, "Bits of a token: u16 (default) or u32")->check(CLI::IsMember({"u16", "u32"}));
  pack.add_option("--jsonl-key", arguments.pack.jsonl_key, "The key of the text in a .jsonl file's objects (default: text)");
  pack.add_option("--document-end", arguments.pack.document_end,
                  "The id to put behind each document (file, or line of a .jsonl file), or none; default: 0 behind lines, none behind files");
  pack.add_flag("--force", arguments.pack.force, "Replace the file if it exists");
  pack.callback([&] { action = [&] { return data_pack(arguments.pack, std::cout, std::cerr); }; });
  CLI::App& info = *data.add_subcommand("info", "What a token file holds");
  add_data_file(info, arguments.info.file);
  info.add_option("--seq-len", arguments.info.seq_len, "Count samples of this many tokens");
  info.add_option("--format", arguments.info.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  info.callback([&] { action = [&] { return data_info(arguments.info, std::cout, std::cerr); }; });
  CLI::App& show = *data.add_subcommand("show", "The tokens of samples, as a run sees them");
  add_data_file(show, arguments.show.file);
  show.add_option("--seq-len", arguments.show.seq_len, "Tokens per sample, as model.seq_len")->required();
  show.add_option("--sample", arguments.show.position, "Its position in the order, from 0");
  show.add_option("--count", arguments.show.count, "How many samples, from that one on");
  show.add_option("--order", arguments.show.order, "sequential (default), shuffled or megatron, as data.order")
      ->check(CLI::IsMember({"sequential", "shuffled", "megatron"}));
  show.add_option("--seed", arguments.show.seed, "As train.seed (default: 1)");
  show.add_option("--samples", arguments.show.samples, "megatron: how many the run takes in all, steps x global batch (default: one epoch's)");
  show.add_option("--format", arguments.show.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  show.callback([&] { action = [&] { return data_show(arguments.show, std::cout); }; });
}

void add_checkpoint(CLI::App& app, Arguments& arguments, Action& action) {
  CLI::App& checkpoint = *app.add_subcommand("checkpoint", "Saved states of training runs");
  checkpoint.require_subcommand(1);
  CLI::App& info = *checkpoint.add_subcommand("info", "Describe a checkpoint and verify every byte of it");
  info.add_option("path", arguments.checkpoint.path, "A checkpoint, or a folder of them: then its latest")->required();
  info.add_option("--format", arguments.checkpoint.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  info.callback([&] { action = [&] { return checkpoint_info(arguments.checkpoint, std::cout); }; });
  CLI::App& to_folder = *checkpoint.add_subcommand("export", "Write a checkpoint's weights in Hugging Face form");
  to_folder.add_option("path", arguments.checkpoint.path, "A checkpoint, or a folder of them: then its latest")->required();
  to_folder.add_option("folder", arguments.checkpoint.folder, "The folder to write; it must not exist or be empty")->required();
  to_folder.add_option("--plugin-path", arguments.checkpoint.plugin_path, "Folders to search for the model's plugin first, separated by colons");
  to_folder.callback([&] { action = [&] { return checkpoint_export(arguments.checkpoint, std::cout); }; });
}

void set_up_log(const std::string& level) {
  const auto logger = spdlog::stderr_color_mt("strata");
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Strata trains large transformer models; every strategy is a plugin that the config names.", "strata");
  app.require_subcommand(1);
  app.set_version_flag("--version", STRATA_VERSION);
  static Arguments arguments;
  Action action;
  app.add_option("--log-level", arguments.log_level, "debug, info, warn, err or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "err", "off"}));
  add_train(app, arguments, action);
  add_plan(app, arguments, action);
  add_compare(app, arguments, action);
  add_launch(app, arguments, action);
  add_plugins(app, arguments, action);
  add_schedule(app, arguments, action);
  add_config(app, arguments, action);
  add_data(app, arguments, action);
  add_checkpoint(app, arguments, action);
  app.add_subcommand("doctor", "What this machine has, and which plugins can be used here")->callback([&] {
    action = [&] { return doctor_command(*open_registry(arguments.plugin_path), std::cout); };
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : 2;
  }
  arguments.run.command_line.assign(argv + 1, argv + argc);
  arguments.run.request.terminal = isatty(STDOUT_FILENO) == 1;
  set_up_log(arguments.log_level);
  try {
    return action();
  } catch (const Error& error) {
    std::cerr << "strata: " << error.what() << std::endl;
    return error.exit_status();
  } catch (const std::exception& error) {
    const std::string text = error.what();  // libtorch's errors carry a stack trace behind their first line
    std::cerr << "strata: internal error: " << text.substr(0, text.find('\n')) << std::endl;
    return 70;
  }
}
