#include "readers.hpp"

#include <strata/input_file.hpp>

#include <filesystem>
#include <fstream>

#include "checkpoint/checksum.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/plugin_state.hpp"
#include "checkpoint/range_index.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "config/tree.hpp"
#include "group/rank_record.hpp"
#include "plugins/elf_section.hpp"
#include "plugins/manifest.hpp"
#include "text/json.hpp"
#include "tools/data/pack.hpp"
#include "tools/schedule/trace_file.hpp"
#include "tools/tokenizer/definition.hpp"

namespace strata::readers {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  const InputFile file(path);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

std::string folder_of(const std::string& path) {
  return fs::path(path).parent_path().string();
}

// What follows the first line of checkpoint.json, with the first line that belongs to it.
void read_sealed(const std::string& path) {
  const std::string body = text_of(path);
  const fs::path folder = fs::path(path).parent_path() / "sealed";
  fs::create_directories(folder);
  std::ofstream(folder / "checkpoint.json", std::ios::binary)
      << "{\"xxh3\": \"" << checkpoint::format_checksum(checkpoint::checksum_of(body)) << "\", \"checkpoint\":\n"
      << body;
  checkpoint::TrainingCheckpoint::read(folder);
}

void read_manifest(const std::string& text) {
  plugins::Manifest manifest;
  try {
    plugins::parse_manifest(text, manifest);
  } catch (const plugins::DamagedFile& error) {
    throw UserError(std::string("the file ") + error.what());
  }
}

void read_plugin(const std::string& path) {
  std::string text;
  try {
    text = plugins::read_elf_section(path, ".strata");
  } catch (const plugins::DamagedFile& error) {
    throw UserError(Place{path}, error.what());
  }
  read_manifest(text);
}

void pack(const std::string& path) {
  cli::PackOptions options;
  options.existing = data::Existing::Replace;
  cli::pack_text({path}, path + ".packed", options);
}

// Of a checkpoint of one parameter of two elements, in one shard of 8 bytes.
void read_index(const std::string& path) {
  checkpoint::SavedParameter parameter;
  parameter.name = "w";
  parameter.shape = {2};
  const checkpoint::RangeIndex index(folder_of(path), std::vector<std::uint64_t>{8}, {parameter});
  index.ranges("w", checkpoint::master_state, 0);
}

}  // namespace

const std::vector<Reader>& all_readers() {
  static const std::vector<Reader> readers{
      {"yaml", "run.yaml", "core/engine/config/read_yaml.cpp",
       [](const std::string& path) { config::read_file(path); }},
      {"toml", "run.toml", "core/engine/config/read_toml.cpp",
       [](const std::string& path) { config::read_file(path); }},
      {"json", "run.json", "core/engine/config/read_json.cpp",
       [](const std::string& path) { config::read_file(path); }},
      {"safetensors", "model.safetensors", "core/engine/checkpoint/safetensors.cpp",
       [](const std::string& path) { checkpoint::SafetensorsFile file(path); }},
      {"index", "model.safetensors.index.json", "core/engine/checkpoint/hugging_face_import.cpp",
       [](const std::string& path) { checkpoint::HuggingFaceFolder folder(folder_of(path)); }},
      {"model config", "config.json", "core/engine/checkpoint/hugging_face_import.cpp",
       [](const std::string& path) { checkpoint::HuggingFaceFolder folder(folder_of(path)); }},
      {"checkpoint", "checkpoint.json", "core/engine/checkpoint/training_checkpoint.cpp",
       [](const std::string& path) { checkpoint::TrainingCheckpoint::read(folder_of(path)); }},
      {"sealed checkpoint", "body.json", "core/engine/checkpoint/training_checkpoint.cpp", read_sealed},
      {"rank file", "rank-0-of-1.json", "core/engine/checkpoint/plugin_state.cpp",
       [](const std::string& path) { checkpoint::PluginFile file(path); }},
      {"plugins of a checkpoint", "plugins.safetensors", "core/engine/checkpoint/plugin_state.cpp",
       [](const std::string& path) { checkpoint::PluginFile file(path); }},
      {"index of shards", "index.safetensors", "core/engine/checkpoint/range_index.cpp", read_index},
      {"manifest", "manifest.json", "core/engine/plugins/manifest.cpp",
       [](const std::string& path) { read_manifest(text_of(path)); }},
      {"plugin file", "libstrata_x.so", "core/engine/plugins/elf_section.cpp", read_plugin},
      {"tokenizer", "tokenizer.json", "core/tools/tokenizer/definition.cpp",
       [](const std::string& path) { tokenizer::read_definition(path); }},
      {"trace", "trace.json", "core/tools/schedule/trace_file.cpp",
       [](const std::string& path) { schedule::read_trace(path); }},
      {"json lines", "text.jsonl", "core/tools/data/jsonl.cpp", pack},
      {"rank record", "record.json", "core/engine/group/rank_record.cpp",
       [](const std::string& path) { group::parse_record(text_of(path)); }},
  };
  return readers;
}

}  // namespace strata::readers
