// `strata data pack`, `strata data info` and `strata data show`. All return the exit status and throw strata::Error.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "plugins/registry.hpp"

namespace strata::cli {

struct DataPackOptions {
  std::vector<std::string> inputs;  // files and folders
  std::string output;
  std::string width;      // "u16", "u32", or "": from the output's name
  bool force = false;     // replace an existing output
  std::string jsonl_key;  // key of the text in JSON lines; empty: "text", in .jsonl files only
  // "none", a token id, or "auto": the tokenizer's own; without a tokenizer 0 after each JSON line.
  std::string document_end = "auto";
  std::string tokenizer;  // a tokenizer.json or its folder; empty: bytes are tokens
  int threads = 0;        // threads of the tokenizer; 0: all cores
  bool as_is = false;     // pack every file as one document, whatever its content
};

// Data set of data.path, and the plugin that reads it.
struct DataFile {
  std::string path;                   // as data.path
  std::string plugin;                 // as data.plugin; empty: the plugin that recognizes the data, or the default
  std::vector<std::string> settings;  // OPTION=VALUE of the plugin
};

struct DataInfoOptions {
  DataFile file;
  std::optional<std::int64_t> seq_len;            // if set, also count samples
  std::string format = "text";                    // "text" or "json" (one object)
  std::optional<std::int64_t> document_end = {};  // as data.document_end: samples of one document each
};

struct DataShowOptions {
  DataFile file;
  std::int64_t seq_len = 0;
  std::int64_t position = 0;  // position of the first sample to show
  std::int64_t count = 1;
  std::string order = "sequential";  // as data.order
  std::uint64_t seed = 1;            // as train.seed
  std::int64_t samples = 0;          // total number of samples of a run, for a plugin's own order; 0: one epoch
  std::string format = "text";       // "text" or "json" (one object a line)
  std::string tokenizer;             // tokenizer.json, or its folder, that made the tokens
  std::optional<std::int64_t> document_end = {};  // as data.document_end: samples of one document each
};

// Results go to `out`, progress to `err`: one line every two seconds.
int data_pack(const DataPackOptions& options, std::ostream& out, std::ostream& err);
int data_info(plugins::PluginRegistry& registry, const DataInfoOptions& options, std::ostream& out,
              std::ostream& err);  // Prints the samples' tokens as a run with these settings reads them, and their
                                   // text: with a tokenizer, or of tokens
                                   // that are all bytes.
int data_show(plugins::PluginRegistry& registry, const DataShowOptions& options, std::ostream& out);

}  // namespace strata::cli
