#include "tools/deepspeed/deepspeed_table.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>

#include "config/defaults.hpp"

namespace strata::config {
namespace {

constexpr const char* kTableFile = "deepspeed.yaml";

std::vector<int> numbers(const std::string& version) {
  std::vector<int> parts;
  const char* at = version.data();
  const char* end = at + version.size();
  while (at < end) {
    int part = 0;
    const auto result = std::from_chars(at, end, part);
    parts.push_back(part);
    at = std::find(result.ptr, end, '.');
    if (at < end) ++at;
  }
  while (!parts.empty() && parts.back() == 0) parts.pop_back();
  return parts;
}

}  // namespace

const DeepSpeedTable& DeepSpeedTable::installed() {
  static std::map<std::string, std::unique_ptr<DeepSpeedTable>> tables;
  const std::string folder = configs_folder();
  std::unique_ptr<DeepSpeedTable>& table = tables[folder];
  if (!table)
    table = std::make_unique<DeepSpeedTable>(read_file((std::filesystem::path(folder) / kTableFile).string()));
  return *table;
}

const Node& DeepSpeedTable::part(const std::string& name) const {
  const Node* node = tree_.get(name);
  if (node == nullptr) throw UserError(tree_.place, std::string(kTableFile) + " has no part " + name);
  return *node;
}

const Node* DeepSpeedTable::key(const std::string& path) const {
  return part("keys").get(path);
}

const Node* DeepSpeedTable::block(const std::string& path) const {
  return part("blocks").get(path);
}

std::vector<std::string> DeepSpeedTable::children(const std::string& path) const {
  std::vector<std::string> names;
  const std::string before = path.empty() ? "" : path + ".";
  for (const char* kind : {"keys", "blocks", "aliases"}) {
    for (const Entry& entry : part(kind).entries) {
      if (entry.key.size() <= before.size() || !entry.key.starts_with(before)) continue;
      const std::string name = entry.key.substr(before.size(), entry.key.find('.', before.size()) - before.size());
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string text_at(const Node& map, const std::string& key) {
  const Node* node = map.get(key);
  return node == nullptr ? "" : node->text;
}

bool flag_at(const Node& map, const std::string& key) {
  return text_at(map, key) == "true";
}

int compare_versions(const std::string& left, const std::string& right) {
  const std::vector<int> ours = numbers(left), theirs = numbers(right);
  return ours < theirs ? -1 : ours > theirs ? 1 : 0;
}

}  // namespace strata::config
