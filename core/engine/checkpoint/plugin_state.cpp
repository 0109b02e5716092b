#include "checkpoint/plugin_state.hpp"

#include <strata/format.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <bit>

#include "text/json.hpp"
#include "text/printable.hpp"

namespace strata::checkpoint {
namespace {

constexpr const char* plugins_key = "plugins";
constexpr const char* rank_bytes_type = "rank_bytes";  // of format 1
constexpr std::size_t rank_file_limit = std::size_t{1} << 34;

// Fixed width, so that the file's order, which is by name, is that of the numbers.
std::string tensor_name(std::size_t number, const std::string& slot, std::string_view name) {
  return fmt::format("{:08}|{}|{}", number, slot, name);
}

nlohmann::json list_of(const std::vector<PluginFileWriter::Entry>& entries) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [saved, bytes] : entries)
    list.push_back({{"slot", saved.slot},
                    {"plugin", saved.plugin},
                    {"state_version", saved.state_version},
                    {"values", saved.values}});
  return list;
}

std::vector<TensorSpec> specs_of(const std::vector<PluginFileWriter::Entry>& entries) {
  std::vector<TensorSpec> specs;
  for (const auto& [saved, all] : entries)
    for (const MeasuredState::Bytes& bytes : all)
      specs.push_back({tensor_name(specs.size(), saved.slot, bytes.name), at::kByte, {bytes.count}});
  return specs;
}

bool is_hexadecimal(const std::string& text) {
  return text.size() % 2 == 0 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A saved value: {TYPE: VALUE}.
void check_value(const text::JsonValue& saved) {
  for (const auto& [type, value] : saved.members()) {
    if (type == "integer") value.integer();
    if (type == "number")
      value.check(value.text().size() == 16 && is_hexadecimal(value.text()), "it must have 16 hexadecimal digits");
    if (type == "text") value.text();
    if (type == "bytes" || type == rank_bytes_type)
      value.check(is_hexadecimal(value.text()), "it must consist of pairs of hexadecimal digits");
  }
}

std::vector<SavedPlugin> plugins_in(const text::JsonValue& list) {
  std::vector<SavedPlugin> plugins;
  for (const text::JsonValue& entry : list.elements()) {
    const std::int64_t version = entry["state_version"].count();
    entry["state_version"].check(version <= INT32_MAX, "it must be a version number");
    for (const auto& [name, value] : entry["values"].members()) check_value(value);
    plugins.push_back(
        {entry["slot"].text(), entry["plugin"].text(), static_cast<int>(version), entry["values"].json()});
  }
  return plugins;
}

}  // namespace

void MeasuredState::add_name(std::string_view name) {
  if (!names_.emplace(name).second) throw Bug("{} saves the value {} twice", plugin_, name);
  try {
    nlohmann::json(std::string(name)).dump();
  } catch (const nlohmann::json::exception&) {
    throw Bug("{} saves a value whose name is not UTF-8: {}", plugin_, text::one_line(name));
  }
}

void MeasuredState::add(std::string_view name, const char* type, nlohmann::json value) {
  add_name(name);
  const std::string key(name);
  values_[key] = {{type, std::move(value)}};
  const std::string line = key + "\n" + values_[key].dump() + "\n";
  checksum_.add(line.data(), line.size());
}

void MeasuredState::integer(std::string_view name, std::int64_t value) {
  add(name, "integer", value);
}
void MeasuredState::number(std::string_view name, double value) {
  add(name, "number", format_checksum(std::bit_cast<std::uint64_t>(value)));
}
void MeasuredState::text(std::string_view name, std::string_view value) {
  try {
    nlohmann::json(std::string(value)).dump();
  } catch (const nlohmann::json::exception&) {
    throw Bug("{} saves a text that is not UTF-8 under {}; save it with bytes()", plugin_, text::one_line(name));
  }
  add(name, "text", std::string(value));
}

void MeasuredState::add_bytes(std::string_view name, std::span<const std::byte> value, bool of_rank) {
  add_name(name);
  bytes_.push_back({std::string(name), static_cast<std::int64_t>(value.size()), of_rank});
}

void MeasuredState::bytes(std::string_view name, std::span<const std::byte> value) {
  add_bytes(name, value, false);
  const std::string line = format("{}\n{}\n", name, value.size());
  checksum_.add(line.data(), line.size());
  checksum_.add(value.data(), value.size());
}

void MeasuredState::rank_bytes(std::string_view name, std::span<const std::byte> value) {
  add_bytes(name, value, true);
}

std::uint64_t MeasuredState::checksum() const {
  return checksum_.value();
}

SavedPlugin SavedPlugin::of_all_ranks() const {
  SavedPlugin shared = *this;
  for (auto value = shared.values.begin(); value != shared.values.end();)
    value = value->contains(rank_bytes_type) ? shared.values.erase(value) : std::next(value);
  return shared;
}

PluginFileWriter::PluginFileWriter(const std::filesystem::path& folder, const std::string& name,
                                   const std::vector<Entry>& entries)
    : name_(name), writer_((folder / name).string(), specs_of(entries), {{plugins_key, list_of(entries).dump()}}) {}

void PluginFileWriter::write(const std::string& slot, std::string_view name, std::span<const std::byte> value) {
  const bool announced = next_ < writer_.order().size() && writer_.order()[next_] == tensor_name(next_, slot, name);
  if (!announced) throw Bug("{}: save() returns other names the second time: {}", slot, name);
  const std::string& tensor = writer_.order()[next_++];
  // Read alone: the values are the plugin's.
  writer_.write_range(tensor, 0,
                      at::from_blob(const_cast<std::byte*>(value.data()), {static_cast<std::int64_t>(value.size())},
                                    at::TensorOptions().dtype(at::kByte)));
}

SavedFile PluginFileWriter::finish() {
  writer_.finish();
  return {name_, writer_.bytes(), writer_.checksum()};
}

PluginFile::PluginFile(const std::filesystem::path& path) {
  const data::InputFile file = open_saved(path);
  try {
    if (path.extension() == ".json") {
      plugins_ = plugins_in(text::read_json(file, {rank_file_limit}).object()[plugins_key]);
      return;
    }
    file_.emplace(file);
    const auto list = file_->metadata().find(plugins_key);
    if (list == file_->metadata().end()) throw UserError(Place{path.string()}, "lists no plugins");
    plugins_ = plugins_in(text::JsonDocument(list->second, {path.string(), plugins_key}, {rank_file_limit}).root());
    for (const auto& [name, entry] : file_->tensors()) {
      const std::size_t first = name.find('|'), second = name.find('|', first + 1);
      if (second == std::string::npos || entry.dtype != at::kByte || entry.shape.size() != 1)
        throw UserError(Place{path.string()}, "tensor '{}' is not the state of a plugin", text::one_line(name));
      tensors_[{name.substr(first + 1, second - first - 1), name.substr(second + 1)}] = name;
    }
  } catch (const UserError& error) {
    throw DamagedCheckpoint(std::string(error.what()) + "; the file was not written by Strata");
  }
}

const SavedPlugin* PluginFile::find(const std::string& slot, const std::string& plugin) const {
  for (const SavedPlugin& saved : plugins_)
    if (saved.slot == slot && saved.plugin == plugin) return &saved;
  return nullptr;
}

bool PluginFile::contains(const std::string& slot, std::string_view name) const {
  return tensors_.contains({slot, std::string(name)});
}

std::vector<std::byte> PluginFile::bytes(const std::string& slot, std::string_view name) const {
  const std::string& tensor = tensors_.at({slot, std::string(name)});
  const std::int64_t count = file_->tensors().at(tensor).shape[0];
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  if (count > 0)
    file_->read_range(tensor, 0, count, at::from_blob(bytes.data(), {count}, at::TensorOptions().dtype(at::kByte)));
  return bytes;
}

const nlohmann::json& PluginStateReader::value(std::string_view name, const char* type) const {
  const std::string key(name);
  if (!contains(name))
    throw UserError("{}: has no value {} of {}; it was saved by another version of that plugin", origin_, key,
                    saved_.plugin);
  const auto found = saved_.values.find(key);
  if (found == saved_.values.end() || !found->contains(type))
    throw UserError("{}: the value {} of {} is not of type {}; it was saved by another version of that plugin", origin_,
                    key, saved_.plugin, type);
  return (*found)[type];
}

const PluginFile* PluginStateReader::file_with(std::string_view name) const {
  for (const PluginFile* const file : files_)
    if (file != nullptr && file->contains(saved_.slot, name)) return file;
  return nullptr;
}

bool PluginStateReader::contains(std::string_view name) const {
  return saved_.values.contains(std::string(name)) || file_with(name) != nullptr;
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
  if (const PluginFile* const file = file_with(name)) return file->bytes(saved_.slot, name);
  const auto found = saved_.values.find(std::string(name));
  const bool of_rank = found != saved_.values.end() && found->contains(rank_bytes_type);
  const std::string text = value(name, of_rank ? rank_bytes_type : "bytes").get<std::string>();  // of format 1
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };  // checked when the file was read
  std::vector<std::byte> bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return bytes;
}

}  // namespace strata::checkpoint
