// config.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "run/resolve_run.hpp"
#include "tools/commands/config_command.hpp"

namespace strata::cli {

using plugin_host::EnginePlugins;
using plugin_host::open_registry;

namespace {

void add_config_options(CLI::App& command, ConfigShow& config) {
  command.add_option("config", config.file, "The config: .yaml, .toml or .json, or DeepSpeed's ds_config.json")
      ->required();
  command.add_option("--set", config.settings, "Change one value; may be repeated")->allow_extra_args(false);
  add_deepspeed_allow(command, config.settings);
  add_model_and_data(command, config.settings);
  command
      .add_option_function<int>(
          "--nproc", [&config](int ranks) { config.world = config::World::started_here(ranks); }, "Ranks of the run")
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

void add_config_command(CLI::App& app, Action& action) {
  CLI::App& config = *app.add_subcommand("config", "Configs");
  static ConfigShow arguments;
  static std::string format, output;
  config.require_subcommand(1);
  CLI::App& show = *config.add_subcommand("show", "Every value of a config and where it comes from");
  add_config_options(show, arguments);
  show.add_option("--format", arguments.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  show.add_flag("--lr", arguments.learning_rate, "The learning rate of every step instead");
  const ResolveConfig resolve = [](const std::vector<config::Node>& layers, const config::World& world) {
    const auto registry = open_registry(config::plugin_path(layers));
    return runtime::resolve_run(layers, world, registry, EnginePlugins(registry)).config;
  };
  show.callback([&action, resolve] { action = [resolve] { return config_show(arguments, resolve, std::cout), 0; }; });
  CLI::App& convert =
      *config.add_subcommand("convert", "Write a config, or what a ds_config.json means, in YAML or TOML");
  add_config_options(convert, arguments);
  convert.add_option("--format", format, "yaml, toml or json; else what FILE's name says, or yaml")
      ->check(CLI::IsMember({"yaml", "toml", "json"}));
  convert.add_option("-o,--output", output, "The file to write");
  convert.callback([&action] {
    action = [] {
      const EnginePlugins plugins(open_registry(""));
      return config_convert(arguments, plugins, format, output, std::cout, std::cerr), 0;
    };
  });
}

}  // namespace strata::cli
