// What plugins keep in a checkpoint: a rank's rank-R-of-N.json. Numbers are written as their bits, so that they come
// back equal, NaN included.
//   {"plugins": [{"slot": "precision", "plugin": "precision/NAME", "state_version": 1,
//                 "values": {"skips": {"integer": 3}, "scale": {"number": "40f0000000000000"}}}]}
#pragma once
#include <strata/state_stream.hpp>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata::checkpoint {

class PluginStateWriter final : public StateWriter {
 public:
  // `plugin` stands in messages.
  explicit PluginStateWriter(std::string plugin) : plugin_(std::move(plugin)) {}
  void integer(std::string_view name, std::int64_t value) override;
  void number(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;  // UTF-8, else Bug
  void bytes(std::string_view name, std::span<const std::byte> value) override;
  void rank_bytes(std::string_view name, std::span<const std::byte> value) override;
  const nlohmann::json& values() const { return values_; }

 private:
  void add(std::string_view name, const char* type, nlohmann::json value);

  std::string plugin_;
  nlohmann::json values_ = nlohmann::json::object();
};

class PluginStateReader final : public StateReader {
 public:
  // `origin` and `plugin` stand in messages.
  PluginStateReader(std::string origin, std::string plugin, nlohmann::json values)
      : origin_(std::move(origin)), plugin_(std::move(plugin)), values_(std::move(values)) {}
  bool contains(std::string_view name) const override;
  std::int64_t integer(std::string_view name) const override;
  double number(std::string_view name) const override;
  std::string text(std::string_view name) const override;
  std::vector<std::byte> bytes(std::string_view name) const override;

 private:
  const nlohmann::json& value(std::string_view name, const char* type) const;

  std::string origin_;
  std::string plugin_;
  nlohmann::json values_;
};

struct SavedPlugin {
  std::string slot;    // "precision", "offload.optimizer"
  std::string plugin;  // "precision/NAME"
  int state_version = 1;
  nlohmann::json values = nlohmann::json::object();
  bool operator==(const SavedPlugin&) const = default;
  // Without what is of one rank alone.
  SavedPlugin of_all_ranks() const;
};

std::string format_rank_file(const std::vector<SavedPlugin>& plugins);
// Throws DamagedCheckpoint.
std::vector<SavedPlugin> read_rank_file(const std::filesystem::path& path);

}  // namespace strata::checkpoint
