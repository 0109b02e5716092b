// State of plugins in a checkpoint, in safetensors files. Values equal on all ranks are stored once, in
// plugins.safetensors; rank-R-of-N.safetensors holds the values of rank R alone, and does not exist without any:
//   metadata "plugins"        JSON [{"slot": "precision", "plugin": "precision/NAME", "state_version": 1,
//                             "values": {"skips": {"integer": 3}, "scale": {"number": "40f0000000000000"}}}]
//   tensor NUMBER|SLOT|NAME   U8: bytes; NUMBER counts the file's tensors in the order in which they are saved
// Numbers are written as their bits, so that they are read back exactly, including NaN. Format 1 had rank-R-of-N.json,
// the metadata's JSON as an object {"plugins": [...]} with bytes as hexadecimal text.
#pragma once
#include <strata/state_stream.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

// Values of one plugin, and the sizes of its bytes. A first call of save() measures them; a second call writes the
// bytes without copying them.
class MeasuredState final : public StateWriter {
 public:
  // Starts empty. `plugin`: name for messages.
  explicit MeasuredState(std::string plugin) : plugin_(std::move(plugin)) {}
  void integer(std::string_view name, std::int64_t value) override;
  void number(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;  // must be UTF-8, otherwise Bug
  void bytes(std::string_view name, std::span<const std::byte> value) override;
  void rank_bytes(std::string_view name, std::span<const std::byte> value) override;

  struct Bytes {
    std::string name;
    std::int64_t count = 0;
    bool of_rank = false;
  };
  const nlohmann::json& values() const { return values_; }
  const std::vector<Bytes>& bytes() const { return bytes_; }  // sizes in the order of the calls
  // Returns the checksum of all values except rank_bytes.
  std::uint64_t checksum() const;

 private:
  void add(std::string_view name, const char* type, nlohmann::json value);
  void add_name(std::string_view name);
  void add_bytes(std::string_view name, std::span<const std::byte> value, bool of_rank);

  std::string plugin_;
  std::set<std::string, std::less<>> names_;
  nlohmann::json values_ = nlohmann::json::object();
  std::vector<Bytes> bytes_;
  Checksum checksum_;
};

struct SavedPlugin {
  std::string slot;    // "precision", "offload.optimizer"
  std::string plugin;  // "precision/NAME"
  int state_version = 1;
  nlohmann::json values = nlohmann::json::object();  // with bytes in a file of format 1
  bool operator==(const SavedPlugin&) const = default;
  // Returns a copy without the values of one rank alone.
  SavedPlugin of_all_ranks() const;
};

// Writes plugins' states into one file. [one thread]
class PluginFileWriter {
 public:
  struct Entry {
    SavedPlugin plugin;
    std::vector<MeasuredState::Bytes> bytes;
  };
  // Opens the file. Throws as SafetensorsWriter.
  PluginFileWriter(const std::filesystem::path& folder, const std::string& name, const std::vector<Entry>& entries);
  // Writes the bytes of the next announced name. Throws Bug for another name or size.
  void write(const std::string& slot, std::string_view name, std::span<const std::byte> value);
  // Completes the file. Throws Bug when announced bytes were not written.
  SavedFile finish();

 private:
  std::string name_;
  SafetensorsWriter writer_;
  std::size_t next_ = 0;
};

// The second call of a plugin's save(): writes bytes into the file that they belong to.
class BytesWriter final : public StateWriter {
 public:
  // Writes bytes() to `shared` and rank_bytes() to `own`; null: not written by this rank.
  BytesWriter(std::string slot, PluginFileWriter* shared, PluginFileWriter* own)
      : slot_(std::move(slot)), shared_(shared), own_(own) {}
  void integer(std::string_view, std::int64_t) override {}
  void number(std::string_view, double) override {}
  void text(std::string_view, std::string_view) override {}
  void bytes(std::string_view name, std::span<const std::byte> value) override {
    if (shared_ != nullptr) shared_->write(slot_, name, value);
  }
  void rank_bytes(std::string_view name, std::span<const std::byte> value) override {
    if (own_ != nullptr) own_->write(slot_, name, value);
  }

 private:
  std::string slot_;
  PluginFileWriter* shared_;
  PluginFileWriter* own_;
};

// A file of plugins' states; bytes are read on demand. [one thread]
class PluginFile {
 public:
  // Opens a file of PluginFileWriter, or of format 1. Throws DamagedCheckpoint.
  explicit PluginFile(const std::filesystem::path& path);
  const std::vector<SavedPlugin>& plugins() const { return plugins_; }
  const SavedPlugin* find(const std::string& slot, const std::string& plugin) const;  // null if absent
  // True if the file has bytes of this name for `slot`; bytes() returns them.
  bool contains(const std::string& slot, std::string_view name) const;
  std::vector<std::byte> bytes(const std::string& slot, std::string_view name) const;

 private:
  std::vector<SavedPlugin> plugins_;
  std::optional<SafetensorsFile> file_;                                 // empty for format 1
  std::map<std::pair<std::string, std::string>, std::string> tensors_;  // tensors by slot and name
};

// Reads the values of one plugin.
class PluginStateReader final : public StateReader {
 public:
  // Reads `saved`, the plugin's values, and `files`, which may hold its bytes. `origin`: for messages. All outlive it.
  PluginStateReader(std::string origin, const SavedPlugin& saved, std::vector<const PluginFile*> files)
      : origin_(std::move(origin)), saved_(saved), files_(std::move(files)) {}
  bool contains(std::string_view name) const override;
  std::int64_t integer(std::string_view name) const override;
  double number(std::string_view name) const override;
  std::string text(std::string_view name) const override;
  std::vector<std::byte> bytes(std::string_view name) const override;

 private:
  const nlohmann::json& value(std::string_view name, const char* type) const;
  const PluginFile* file_with(std::string_view name) const;

  std::string origin_;
  const SavedPlugin& saved_;
  std::vector<const PluginFile*> files_;
};

inline constexpr const char* plugins_file_name = "plugins.safetensors";

}  // namespace strata::checkpoint
