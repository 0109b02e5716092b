// checkpoint.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/checkpoint_command.hpp"

namespace strata::cli {

void add_checkpoint_command(CLI::App& app, Action& action) {
  CLI::App& checkpoint = *app.add_subcommand("checkpoint", "Saved states of training runs");
  static CheckpointArguments arguments;
  checkpoint.require_subcommand(1);
  CLI::App& info = *checkpoint.add_subcommand("info", "Describe a checkpoint and verify every byte of it");
  info.add_option("path", arguments.path, "A checkpoint, or a folder of them: then its latest")->required();
  info.add_option("--format", arguments.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  info.callback([&action] { action = [] { return checkpoint_info(arguments, std::cout); }; });
  CLI::App& to_folder = *checkpoint.add_subcommand("export", "Write a checkpoint's weights in Hugging Face form");
  to_folder.add_option("path", arguments.path, "A checkpoint, or a folder of them: then its latest")->required();
  to_folder.add_option("folder", arguments.folder, "The folder to write; it must not exist or be empty")->required();
  to_folder.add_option("--plugin-path", arguments.plugin_path,
                       "Folders to search for the model's plugin first, separated by colons");
  to_folder.callback([&action] { action = [] { return checkpoint_export(arguments, std::cout); }; });
}

}  // namespace strata::cli
