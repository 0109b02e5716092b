// config.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "run/resolve_run.hpp"
#include "tools/commands/config_command.hpp"
#include "tools/commands/config_reference.hpp"

namespace strata::cli {

using plugin_host::EnginePlugins;
using plugin_host::open_registry;

namespace {

void add_config_options(CLI::App& command, ConfigShow& config) {
  command.add_option("config", config.file, "Config file: .yaml, .toml, .json, or a DeepSpeed ds_config.json")
      ->required();
  command.add_option("--set", config.settings, "Override one config value; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_deepspeed_allow(command, config.settings);
  add_model_and_data(command, config.settings);
  command
      .add_option_function<int>(
          "--nproc", [&config](int ranks) { config.world = config::World::started_here(ranks); },
          "Number of ranks of the run")
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

void add_config_command(CLI::App& app, Action& action) {
  CLI::App& config = *app.add_subcommand("config", "Show, explain and convert configs");
  static ConfigShow arguments;
  static std::string format, output, key, plugin_path;
  config.require_subcommand(1);
  CLI::App& show = *config.add_subcommand("show", "Print every config value and where it comes from");
  add_config_options(show, arguments);
  show.add_option("--format", arguments.format, "Output format")
      ->check(CLI::IsMember(table_formats))
      ->capture_default_str();
  show.add_flag("--lr", arguments.learning_rate, "Print the learning rate of every step instead");
  show.footer(
      "  strata config show run.yaml --nproc 8\n"
      "  strata config show run.yaml --lr --format csv");
  const ResolveConfig resolve = [](const std::vector<config::Node>& trees, const config::World& world) {
    const auto registry = open_registry(config::plugin_path(trees));
    return runtime::resolve_run(trees, world, registry, EnginePlugins(registry)).config;
  };
  show.callback([&action, resolve] { action = [resolve] { return config_show(arguments, resolve, std::cout), 0; }; });
  const auto add_plugin_path = [](CLI::App& command) {
    command.add_option("--plugin-path", plugin_path, "Folders to search for plugins first, separated by colons");
  };
  CLI::App& explain =
      *config.add_subcommand("explain", "Print what a key means: type, default, range, effect, example");
  explain
      .add_option("key", key, "A key, a plugin's option or a section, as in train.clip, optimizer.betas, checkpoint")
      ->required();
  add_plugin_path(explain);
  explain.callback(
      [&action] { action = [] { return config_explain(*open_registry(plugin_path), key, std::cout), 0; }; });
  CLI::App& reference = *config.add_subcommand("reference", "Print every key and every plugin's options, in Markdown");
  add_plugin_path(reference);
  reference.callback(
      [&action] { action = [] { return config_reference(*open_registry(plugin_path), std::cout), 0; }; });
  CLI::App& convert = *config.add_subcommand(
      "convert", "Convert a config or a ds_config.json to a Strata config in YAML, TOML or JSON");
  add_config_options(convert, arguments);
  convert.add_option("--format", format, "Output format (default: from the name of the output file, else yaml)")
      ->check(CLI::IsMember({"yaml", "toml", "json"}));
  convert.add_option("-o,--output", output, "File to write (default: stdout)");
  convert.footer("  strata config convert ds_config.json --model gpt_neox:pythia-160m --data train.bin -o run.yaml");
  convert.callback([&action] {
    action = [] {
      const EnginePlugins plugins(open_registry(""));
      return config_convert(arguments, plugins, format, output, std::cout, std::cerr), 0;
    };
  });
}

}  // namespace strata::cli
