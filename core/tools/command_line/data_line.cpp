// data.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "tools/commands/data_command.hpp"

namespace strata::cli {

namespace {

void add_data_file(CLI::App& command, DataFile& file, std::string& plugin_path) {
  command.add_option("file", file.path, "What data.path names: a token file, a pattern of several, a prefix")
      ->required();
  command.add_option("--plugin", file.plugin,
                     "The data plugin, as data.plugin; if omitted, the one that recognizes the file, else the default");
  command.add_option("--set", file.settings, "OPTION=VALUE: an option of the plugin; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--plugin-path", plugin_path, "Folders to search first, separated by colons");
}

}  // namespace

void add_data_command(CLI::App& app, Action& action) {
  CLI::App& data = *app.add_subcommand("data", "Token files");
  static std::string plugin_path;
  static DataPackOptions pack_options;
  static DataInfoOptions info_options;
  static DataShowOptions show_options;
  data.require_subcommand(1);
  CLI::App& pack = *data.add_subcommand("pack", "Turn text files into tokens: each byte is one");
  pack.add_option("inputs", pack_options.inputs, "Files and folders; of a .jsonl file the text in each line's object")
      ->required();
  pack.add_option("-o,--output", pack_options.output, "The token file to write")->required();
  pack.add_option("--width", pack_options.width, "Bits of a token: u16 (default) or u32")
      ->check(CLI::IsMember({"u16", "u32"}));
  pack.add_option("--jsonl-key", pack_options.jsonl_key,
                  "The key of the text in a .jsonl file's objects (default: text)");
  pack.add_option("--document-end", pack_options.document_end,
                  "The id to put behind each document (file, or line of a .jsonl file), or none; default: 0 behind "
                  "lines, none behind files");
  pack.add_flag("--force", pack_options.force, "Replace the file if it exists");
  pack.callback([&action] { action = [] { return data_pack(pack_options, std::cout, std::cerr); }; });
  CLI::App& info = *data.add_subcommand("info", "What a token file holds");
  add_data_file(info, info_options.file, plugin_path);
  info.add_option("--seq-len", info_options.seq_len, "Count samples of this many tokens as well");
  info.add_option("--format", info_options.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  info.callback([&action] {
    action = [] { return data_info(*plugin_host::open_registry(plugin_path), info_options, std::cout, std::cerr); };
  });
  CLI::App& show = *data.add_subcommand("show", "The tokens of samples, as a run sees them");
  add_data_file(show, show_options.file, plugin_path);
  show.add_option("--seq-len", show_options.seq_len, "Tokens per sample, as model.seq_len")->required();
  show.add_option("--sample", show_options.position, "Its position in the order, from 0");
  show.add_option("--count", show_options.count, "How many samples, from that one on");
  show.add_option("--order", show_options.order, "sequential (default), shuffled or own, as data.order")
      ->check(CLI::IsMember({"sequential", "shuffled", "own"}));
  show.add_option("--seed", show_options.seed, "As train.seed (default: 1)");
  show.add_option("--samples", show_options.samples,
                  "How many the run takes in all, steps x global batch (default: one epoch's)");
  show.add_option("--format", show_options.format, "text or json")->check(CLI::IsMember({"text", "json"}));
  show.callback([&action] {
    action = [] { return data_show(*plugin_host::open_registry(plugin_path), show_options, std::cout); };
  });
}

}  // namespace strata::cli
