// Options that several commands share.
#include "tools/command_line/command_line.hpp"

#include <nlohmann/json.hpp>

#include "text/size.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/launch/host_resources.hpp"

namespace strata::cli {

void add_setting(CLI::App& command, const std::string& option, const std::string& key,
                 std::vector<std::string>& settings, const std::string& text) {
  command.add_option_function<std::string>(
      option,
      [&settings, key](const std::string& value) { settings.push_back(key + "=" + nlohmann::json(value).dump()); },
      text);
}

void add_oversubscribe(CLI::App& command, bool& oversubscribe) {
  command.add_flag("--oversubscribe", oversubscribe,
                   "Allow more than " + std::to_string(launch::most_ranks_a_core) + " ranks per core, or less than " +
                       config::format_bytes(launch::least_rank_bytes) + " of free memory per rank");
}

void add_deepspeed_allow(CLI::App& command, std::vector<std::string>& settings) {
  command
      .add_option_function<std::vector<std::string>>(
          "--allow",
          [&settings](const std::vector<std::string>& keys) {
            settings.push_back("deepspeed_allow=" + nlohmann::json(keys).dump());
          },
          "Ignore this unsupported ds_config key where that does not change training; repeatable")
      ->type_name("KEY")
      ->allow_extra_args(false);
}

void add_model_and_data(CLI::App& command, std::vector<std::string>& settings) {
  command.add_option_function<std::string>(
      "--model",
      [&settings](const std::string& value) {
        for (const std::string& setting : model_settings(value)) settings.push_back(setting);
      },
      "Model plugin: NAME, NAME:PRESET, or NAME:FOLDER, a folder of initial weights in Hugging Face format");
  add_setting(command, "--data", "data.path", settings, "Token file; sets data.path");
  add_setting(command, "--dtype", "precision.plugin", settings, "Precision plugin; sets precision.plugin");
}

}  // namespace strata::cli
