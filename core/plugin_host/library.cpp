#include "plugin_host/library.hpp"

#include <boost/dll/shared_library.hpp>
#include <boost/system/system_error.hpp>
#include <map>

#include "plugin_host/elf_section.hpp"

namespace strata::plugin_host {
namespace {

constexpr const char* entry_symbol = "strata_plugin_entry_v1";

// The linker's message on one line, without Boost's text around it.
std::string load_reason(std::string text) {
  const std::string marker = "dlerror system message: ";
  const std::size_t begin = text.find(marker);
  if (begin != std::string::npos) {
    text.erase(0, begin + marker.size());
    text.erase(text.find_last_of(')') == std::string::npos ? text.size() : text.find_last_of(')'));
  }
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

boost::dll::shared_library load(const std::string& path) {
  try {
    using boost::dll::load_mode::rtld_local;
    using boost::dll::load_mode::rtld_now;
    return boost::dll::shared_library(path, rtld_now | rtld_local);
  } catch (const std::exception& error) {
    throw DamagedFile("cannot be loaded: " + load_reason(error.what()));
  }
}

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
  static auto& loaded = *new std::map<std::string, boost::dll::shared_library>;  // [Note: Never unloaded]
  auto library = loaded.find(path);
  // Kept even if it is unusable, because its static constructors have run.
  if (library == loaded.end()) library = loaded.emplace(path, load(path)).first;
  if (!library->second.has(entry_symbol)) {
    throw DamagedFile(std::string("is not a plugin: it does not export ") + entry_symbol);
  }
  const PluginEntry* const entry = library->second.get<decltype(strata_plugin_entry_v1)>(entry_symbol)();
  check_entry(entry, manifest);
  return *entry;
}

}  // namespace strata::plugin_host
