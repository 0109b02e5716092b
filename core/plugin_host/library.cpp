#include "plugin_host/library.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "plugin_host/elf_section.hpp"

namespace strata::plugin_host {
namespace {

constexpr const char* entry_symbol = "strata_plugin_entry_v1";

void check_entry(const PluginEntry* entry, const Manifest& manifest) {
  if (entry == nullptr) throw DamagedFile(std::string("returns no entry from ") + entry_symbol);
  if (entry->struct_size < sizeof(PluginEntry)) {
    throw DamagedFile("has an entry of " + std::to_string(entry->struct_size) +
                      " bytes; this Strata expects at least " + std::to_string(sizeof(PluginEntry)));
  }
  const AbiVersion built{entry->abi_major, entry->abi_minor};
  if (built != manifest.abi) {
    throw DamagedFile("contradicts itself: its entry says plugin ABI " + to_string(built) + ", its manifest " +
                      to_string(manifest.abi));
  }
  if (entry->manifest == nullptr || manifest.text != entry->manifest) {
    throw DamagedFile("contradicts itself: its entry has another manifest than its section .strata");
  }
  if (entry->create == nullptr) throw DamagedFile("has an entry without a factory");
}

}  // namespace

const PluginEntry& load_library(const std::string& path, const Manifest& manifest) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // [Note: Never unloaded]
  if (library == nullptr) {
    std::string reason = ::dlerror();
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    throw DamagedFile("cannot be loaded: " + reason);
  }
  void* const symbol = ::dlsym(library, entry_symbol);
  if (symbol == nullptr) throw DamagedFile(std::string("is not a plugin: it does not export ") + entry_symbol);
  const PluginEntry* const entry = reinterpret_cast<decltype(&strata_plugin_entry_v1)>(symbol)();
  check_entry(entry, manifest);
  return *entry;
}

}  // namespace strata::plugin_host
