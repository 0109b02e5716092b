#include "tools/deepspeed/deepspeed_table.hpp"

#include <algorithm>
#include <sstream>

namespace strata::config {
namespace {

constexpr const char* embedded_keys =
#include "deepspeed_keys.inc"
    ;

std::vector<int> numbers(const std::string& version) {
  std::istringstream text(version);
  std::vector<int> parts;
  for (int part = 0; text >> part; text.ignore()) parts.push_back(part);
  while (!parts.empty() && parts.back() == 0) parts.pop_back();
  return parts;
}

}  // namespace

const DeepSpeedTable& DeepSpeedTable::get() {
  static const DeepSpeedTable table(read_text(embedded_keys, Format::Yaml, "keys.yaml"));
  return table;
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

int compare_versions(const std::string& left, const std::string& right) {
  const std::vector<int> ours = numbers(left), theirs = numbers(right);
  return ours < theirs ? -1 : ours > theirs ? 1 : 0;
}

}  // namespace strata::config
