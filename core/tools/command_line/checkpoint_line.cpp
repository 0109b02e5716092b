// checkpoint.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/checkpoint_command.hpp"

namespace strata::cli {

void add_checkpoint_command(CLI::App& app, Action& action) {
  CLI::App& checkpoint = *app.add_subcommand("checkpoint", "Inspect and export checkpoints");
  static CheckpointArguments arguments;
  checkpoint.require_subcommand(1);
  CLI::App& info = *checkpoint.add_subcommand("info", "Describe a checkpoint and verify its checksums");
  info.add_option("path", arguments.path, "A checkpoint, or a folder of checkpoints for the latest one")->required();
  info.add_option("--format", arguments.format, "Output format")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  info.footer("  strata checkpoint info ckpt");
  info.callback([&action] { action = [] { return checkpoint_info(arguments, std::cout); }; });
  CLI::App& to_folder = *checkpoint.add_subcommand("export", "Write a checkpoint's weights in Hugging Face format");
  to_folder.add_option("path", arguments.path, "A checkpoint, or a folder of checkpoints for the latest one")
      ->required();
  to_folder.add_option("folder", arguments.folder, "Folder to write; must be new or empty")->required();
  to_folder.add_option("--plugin-path", arguments.plugin_path,
                       "Folders to search for the model plugin first, separated by colons");
  to_folder.footer("  strata checkpoint export ckpt hf_folder");
  to_folder.callback([&action] { action = [] { return checkpoint_export(arguments, std::cout); }; });
}

}  // namespace strata::cli
