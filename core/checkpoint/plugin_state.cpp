#include "checkpoint/plugin_state.hpp"

#include <bit>

#include "checkpoint/checksum.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "text/json.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

constexpr const char* rank_bytes_type = "rank_bytes";
constexpr std::size_t rank_file_limit = std::size_t{1} << 34;

std::string hexadecimal(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

bool is_hexadecimal(const std::string& text) {
  return text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A saved value: {TYPE: VALUE}.
void check_value(const text::JsonValue& saved) {
  for (const auto& [type, value] : saved.members()) {
    if (type == "integer") value.integer();
    if (type == "number")
      value.check(value.text().size() == 16 && is_hexadecimal(value.text()), "it must be of 16 hexadecimal digits");
    if (type == "text") value.text();
    if (type == "bytes" || type == rank_bytes_type)
      value.check(is_hexadecimal(value.text()), "it must be of pairs of hexadecimal digits");
  }
}

}  // namespace

void PluginStateWriter::add(std::string_view name, const char* type, nlohmann::json value) {
  const std::string key(name);
  if (values_.contains(key)) throw Bug(plugin_ + " saves the value " + key + " twice");
  nlohmann::json entry = {{type, std::move(value)}};
  try {
    entry.dump();
    nlohmann::json(key).dump();
  } catch (const nlohmann::json::exception&) {
    throw Bug(plugin_ + " saves a text that is not UTF-8 under " + text::one_line(name) + "; bytes() takes anything");
  }
  values_[key] = std::move(entry);
}

void PluginStateWriter::integer(std::string_view name, std::int64_t value) {
  add(name, "integer", value);
}
void PluginStateWriter::number(std::string_view name, double value) {
  add(name, "number", format_checksum(std::bit_cast<std::uint64_t>(value)));
}
void PluginStateWriter::text(std::string_view name, std::string_view value) {
  add(name, "text", std::string(value));
}
void PluginStateWriter::bytes(std::string_view name, std::span<const std::byte> value) {
  add(name, "bytes", hexadecimal(value));
}

void PluginStateWriter::rank_bytes(std::string_view name, std::span<const std::byte> value) {
  add(name, rank_bytes_type, hexadecimal(value));
}

SavedPlugin SavedPlugin::of_all_ranks() const {
  SavedPlugin shared = *this;
  for (auto value = shared.values.begin(); value != shared.values.end();)
    value = value->contains(rank_bytes_type) ? shared.values.erase(value) : std::next(value);
  return shared;
}

const nlohmann::json& PluginStateReader::value(std::string_view name, const char* type) const {
  const std::string key(name);
  if (!values_.contains(key))
    throw UserError(origin_ + ": holds no value " + key + " of " + plugin_ +
                    "; it was saved by another version of that plugin");
  const nlohmann::json& entry = values_[key];
  if (!entry.contains(type))
    throw UserError(origin_ + ": the value " + key + " of " + plugin_ + " is no " + type +
                    "; it was saved by another version of that plugin");
  return entry[type];
}

bool PluginStateReader::contains(std::string_view name) const {
  return values_.contains(std::string(name));
}
std::int64_t PluginStateReader::integer(std::string_view name) const {
  return value(name, "integer").get<std::int64_t>();
}
double PluginStateReader::number(std::string_view name) const {
  return std::bit_cast<double>(
      static_cast<std::uint64_t>(std::stoull(value(name, "number").get<std::string>(), nullptr, 16)));
}
std::string PluginStateReader::text(std::string_view name) const {
  return value(name, "text").get<std::string>();
}
std::vector<std::byte> PluginStateReader::bytes(std::string_view name) const {
  const bool of_rank = contains(name) && values_[std::string(name)].contains(rank_bytes_type);
  const std::string text = value(name, of_rank ? rank_bytes_type : "bytes").get<std::string>();
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw UserError(origin_ + ": the value " + std::string(name) + " of " + plugin_ + " is not hexadecimal");
  };
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return bytes;
}

std::string format_rank_file(const std::vector<SavedPlugin>& plugins) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SavedPlugin& saved : plugins)
    list.push_back({{"slot", saved.slot},
                    {"plugin", saved.plugin},
                    {"state_version", saved.state_version},
                    {"values", saved.values}});
  return nlohmann::ordered_json{{"plugins", list}}.dump(1) + "\n";
}

std::vector<SavedPlugin> read_rank_file(const std::filesystem::path& path) {
  std::vector<SavedPlugin> plugins;
  const data::InputFile file = open_saved(path);
  try {
    const text::JsonDocument whole = text::read_json(file, {rank_file_limit});
    for (const text::JsonValue& entry : whole.object()["plugins"].elements()) {
      const std::int64_t version = entry["state_version"].count();
      entry["state_version"].check(version <= INT32_MAX, "it must be a version number");
      plugins.push_back(
          {entry["slot"].text(), entry["plugin"].text(), static_cast<int>(version), entry["values"].json()});
      for (const auto& [name, value] : entry["values"].members()) check_value(value);
    }
  } catch (const UserError& error) {
    throw DamagedCheckpoint(std::string(error.what()) + "; this is not what Strata writes");
  }
  return plugins;
}

}  // namespace strata::checkpoint
