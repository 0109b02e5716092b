// strata_data: what `strata data` runs. Reads the command line.
#include <iostream>

#include "plugins/engine_plugins.hpp"
#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/data/data_command.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void add_data_file(CLI::App& command, DataFile& file, std::string& plugin_path) {
  command.add_option("file", file.path, "Token file, pattern of several, or PREFIX, as in data.path")->required();
  command.add_option("--plugin", file.plugin,
                     "Data plugin, as data.plugin of the run (default: the one that recognizes the file)");
  command.add_option("--set", file.settings, "Set an option of the plugin; repeatable")
      ->type_name("OPTION=VALUE")
      ->allow_extra_args(false);
  add_plugin_path(command, plugin_path);
}

void describe(CommandLine& line) {
  CLI::App& data = line.app;
  static std::string plugin_path;
  static DataPackOptions pack_options;
  static DataInfoOptions info_options;
  static DataShowOptions show_options;
  data.require_subcommand(1);
  CLI::App& pack =
      *data.add_subcommand("pack", "Convert text files to a token file, by a tokenizer or one token per byte");
  pack.add_option("inputs", pack_options.inputs,
                  "Files and folders; JSON lines, as in .jsonl files, give one document per line")
      ->required();
  pack.add_option("-o,--output", pack_options.output, "Token file to write")->required();
  CLI::Option* tokenizer = pack.add_option("--tokenizer", pack_options.tokenizer,
                                           "tokenizer.json of GPT-2, GPT-NeoX (Pythia), Llama 3, Qwen2 or a related "
                                           "model, or its folder (default: none, tokens are bytes)");
  pack.add_option("--threads", pack_options.threads,
                  "Number of tokenizer threads (default: all cores); the result does not depend on it")
      ->needs(tokenizer)
      ->check(CLI::Range(1, 1024));
  pack.add_option("--width", pack_options.width,
                  "Token width (default: u32 if the output ends in .u32 or .u32.bin, else u16, for ids up to 65535)")
      ->check(CLI::IsMember({"u16", "u32"}));
  CLI::Option* key = pack.add_option("--jsonl-key", pack_options.jsonl_key,
                                     "Read all inputs as JSON lines with the text under this key (default: only files "
                                     "named .jsonl, with the key text)");
  pack.add_flag("--as-is", pack_options.as_is,
                "Pack every file unchanged as one document, including JSON lines and named files that are not text")
      ->excludes(key);
  pack.add_option(
      "--document-end", pack_options.document_end,
      "Token id to write after each document, none, or auto: the tokenizer's <|endoftext|> or <|end_of_text|>; without "
      "a tokenizer, 0 after each JSON line and none after other files (default: auto)");
  pack.add_flag("--force", pack_options.force, "Replace an existing output");
  pack.footer(
      "With --tokenizer, tokens are those of Hugging Face's library tokenizers. Tokens that the tokenizer's template "
      "adds (Llama 3: <|begin_of_text|>) precede each document. Added and special tokens that appear in a text become "
      "their ids. Bytes that are not UTF-8 become U+FFFD; JSON lines with such bytes are refused.\n"
      "\n"
      "  strata data pack corpus/ extra.jsonl -o train.bin --document-end 0\n"
      "  strata data pack corpus.json -o train.u32.bin --jsonl-key text --tokenizer Llama-3.1-8B");
  line.on(pack, [] { return data_pack(pack_options, std::cout, std::cerr); });
  CLI::App& info = *data.add_subcommand("info", "Describe a token file");
  add_data_file(info, info_options.file, plugin_path);
  CLI::Option* seq_len =
      info.add_option("--seq-len", info_options.seq_len, "Also count the samples of this number of tokens");
  info.add_option(
          "--document-end", info_options.document_end,
          "Token id that ends each document: count samples of one document each, as with data.documents: separate")
      ->type_name("ID")
      ->needs(seq_len)
      ->check(CLI::NonNegativeNumber);
  add_format(info, info_options.format, {"text", "json"});
  info.footer("  strata data info train.bin --seq-len 512");
  line.on(info, [] { return data_info(*plugins::open_registry(plugin_path), info_options, std::cout, std::cerr); });
  CLI::App& show = *data.add_subcommand("show", "Print samples as a training run reads them");
  add_data_file(show, show_options.file, plugin_path);
  show.add_option("--seq-len", show_options.seq_len, "Tokens per sample, as model.seq_len of the run")->required();
  show.add_option("--sample", show_options.position, "Position of the first sample in the order, from 0 (default: 0)");
  show.add_option("--count", show_options.count, "Number of samples (default: 1)");
  show.add_option("--order", show_options.order,
                  "Order of the samples, as data.order of the run; own: the plugin's order (default: sequential)")
      ->check(CLI::IsMember({"sequential", "shuffled", "own"}));
  show.add_option(
          "--document-end", show_options.document_end,
          "Token id that ends each document: show samples of one document each, as with data.documents: separate")
      ->type_name("ID")
      ->check(CLI::NonNegativeNumber);
  show.add_option("--seed", show_options.seed, "Random seed of the order, as train.seed of the run (default: 1)");
  show.add_option("--samples", show_options.samples,
                  "Total samples of the run: steps x global batch (default: one epoch)");
  show.add_option("--tokenizer", show_options.tokenizer,
                  "tokenizer.json that made the tokens, or its folder, to show their text");
  add_format(show, show_options.format, {"text", "json"});
  show.footer("  strata data show train.bin --seq-len 128 --order shuffled --sample 3");
  line.on(show, [] { return data_show(*plugins::open_registry(plugin_path), show_options, std::cout); });
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Create and inspect token files", "strata data");
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line);
  leave(carry_out(line));
}
