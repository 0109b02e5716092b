#include <strata/error.hpp>

#include <array>
#include <fstream>
#include <string_view>

#include "plugin_host/registry.hpp"

namespace strata::plugin_host {
namespace {

// 64-bit FNV-1a: detects mistakes, not attacks.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

void add_file(Hash& hash, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 65536> block{};
  while (file) {
    file.read(block.data(), block.size());
    hash.add({block.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (!file.eof()) throw EnvironmentError("plugin file " + path + " can no longer be read");
}

}  // namespace

std::uint64_t digest(const std::vector<const FoundPlugin*>& plugins) {
  Hash hash;
  for (const FoundPlugin* const plugin : plugins) {
    hash.add(full_name(plugin->manifest));
    hash.add(std::string_view("\0", 1));  // separator, so that different lists have different bytes
    if (!plugin->file.empty()) add_file(hash, plugin->file);
    hash.add(std::string_view("\0", 1));
  }
  return hash.value();
}

}  // namespace strata::plugin_host
