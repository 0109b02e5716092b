#include "tools/deepspeed/deepspeed_table.hpp"

#include <algorithm>
#include <sstream>

namespace strata::deepspeed {
namespace {

constexpr const char* embedded_keys =
#include "deepspeed_keys.inc"
    ;

std::vector<int> numbers(const std::string& version) {
  std::istringstream text(version);
  std::vector<int> parts;
  for (int part = 0; text >> part; text.ignore()) parts.push_back(part);
  return parts;
}

}  // namespace

const config::Node& deepspeed_table(const std::string& part) {
  static const config::Node table = config::read_text(embedded_keys, config::Format::Yaml, "keys.yaml");
  return *table.get(part);
}

std::vector<std::string> deepspeed_children(const std::string& path) {
  std::vector<std::string> names;
  if (const config::Node* block = deepspeed_table("blocks").get(path)) {
    if (const config::Node* keys = block->get("keys"))
      for (const config::Node& key : keys->items) names.push_back(key.text);
    return names;
  }
  const std::string before = path.empty() ? "" : path + ".";
  for (const char* part : {"keys", "blocks", "aliases"}) {
    for (const config::Entry& entry : deepspeed_table(part).entries) {
      if (entry.key.size() <= before.size() || !entry.key.starts_with(before)) continue;
      const std::string name = entry.key.substr(before.size(), entry.key.find('.', before.size()) - before.size());
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string text_at(const config::Node& map, const std::string& key) {
  const config::Node* node = map.get(key);
  return node == nullptr ? "" : node->text;
}

bool is_older(const std::string& version, const std::string& than) {
  return numbers(version) < numbers(than);
}

}  // namespace strata::deepspeed
