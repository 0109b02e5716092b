#include "tools/command/command.hpp"

#include <nlohmann/json.hpp>

#include "text/size.hpp"
#include "tools/command/model_settings.hpp"
#include "tools/ranks/host_resources.hpp"

namespace strata::cli {

CLI::Option* add_config_file(CLI::App& command, const std::string& names, std::string& file,
                             std::vector<std::string>& settings, const std::string& example) {
  CLI::Option* const option =
      command.add_option(names, file, "Config file: .yaml, .toml, .json, or a DeepSpeed ds_config.json");
  add_set(command, settings, "Override one config value" + example + "; repeatable");
  command
      .add_option_function<std::vector<std::string>>(
          "--allow",
          [&settings](const std::vector<std::string>& keys) {
            settings.push_back("deepspeed_allow=" + nlohmann::json(keys).dump());
          },
          "Ignore this unsupported ds_config key if that does not change training; repeatable")
      ->type_name("KEY")
      ->allow_extra_args(false);
  return option;
}

void add_set(CLI::App& command, std::vector<std::string>& settings, const std::string& text) {
  command.add_option("--set", settings, text)->type_name("KEY=VALUE")->allow_extra_args(false);
}

CLI::Option* add_setting(CLI::App& command, const std::string& option, const std::string& key,
                         std::vector<std::string>& settings, const std::string& text) {
  return command.add_option_function<std::string>(
      option,
      [&settings, key](const std::string& value) { settings.push_back(key + "=" + nlohmann::json(value).dump()); },
      text);
}

void add_data_and_precision(CLI::App& command, std::vector<std::string>& settings) {
  add_setting(command, "--data", "data.path", settings, "Token file; sets data.path");
  add_setting(command, "--dtype", "precision.plugin", settings, "Precision plugin; sets precision.plugin");
}

void add_model_and_data(CLI::App& command, std::vector<std::string>& settings) {
  command.add_option_function<std::string>(
      "--model",
      [&settings](const std::string& value) {
        for (const std::string& setting : model_settings(value)) settings.push_back(setting);
      },
      "Model plugin: NAME, NAME:PRESET, or NAME:FOLDER with initial weights in Hugging Face format");
  add_data_and_precision(command, settings);
}

CLI::Option* add_nproc(CLI::App& command, int& nproc, bool& oversubscribe) {
  CLI::Option* const option =
      command.add_option("--nproc", nproc, "Number of ranks (processes) to start on this machine")
          ->check(CLI::Range(1, 4096));
  add_oversubscribe(command, oversubscribe);
  command.get_option("--oversubscribe")->needs(option);
  return option;
}

void add_oversubscribe(CLI::App& command, bool& oversubscribe) {
  command.add_flag("--oversubscribe", oversubscribe,
                   "Allow more than " + std::to_string(ranks::most_ranks_a_core) + " ranks per core, or less than " +
                       text::format_bytes(ranks::least_rank_bytes) + " of free memory per rank");
}

void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& formats) {
  command.add_option("--format", format, "Output format")->check(CLI::IsMember(formats))->capture_default_str();
}

void add_plugin_path(CLI::App& command, std::string& plugin_path) {
  command.add_option("--plugin-path", plugin_path, "Folders to search for plugins first, separated by colons");
}

}  // namespace strata::cli
