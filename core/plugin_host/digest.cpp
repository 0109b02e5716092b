#include <strata/error.hpp>

#include <array>
#include <fstream>
#include <string_view>

#include "plugin_host/registry.hpp"

namespace strata::plugin_host {

std::uint64_t digest(const std::vector<const FoundPlugin*>& plugins) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // 64-bit FNV-1a: detects mistakes, not attacks
  const auto add = [&](std::string_view bytes) {
    for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  };
  const std::string_view separator("\0", 1);  // so that different lists have different bytes
  std::array<char, 65536> block{};
  for (const FoundPlugin* const plugin : plugins) {
    add(full_name(plugin->manifest));
    add(separator);
    if (!plugin->file.empty()) {
      std::ifstream file(plugin->file, std::ios::binary);
      while (file) {
        file.read(block.data(), block.size());
        add({block.data(), static_cast<std::size_t>(file.gcount())});
      }
      if (!file.eof()) throw EnvironmentError("plugin file " + plugin->file + " can no longer be read");
    }
    add(separator);
  }
  return hash;
}

}  // namespace strata::plugin_host
