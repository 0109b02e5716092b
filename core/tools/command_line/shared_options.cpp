// Options that several commands have.
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
                   "Start more ranks than " + std::to_string(launch::most_ranks_a_core) +
                       " a core, or than the memory left has " + config::format_bytes(launch::least_rank_bytes) +
                       " each for; else they are refused");
}

void add_deepspeed_allow(CLI::App& command, std::vector<std::string>& settings) {
  command
      .add_option_function<std::vector<std::string>>(
          "--allow",
          [&settings](const std::vector<std::string>& keys) {
            settings.push_back("deepspeed_allow=" + nlohmann::json(keys).dump());
          },
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

}  // namespace strata::cli
