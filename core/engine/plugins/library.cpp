#include "plugins/library.hpp"

#include <boost/dll/shared_library.hpp>
#include <boost/system/system_error.hpp>
#include <cstdint>
#include <map>
#include <utility>

#include "plugins/elf_section.hpp"
#include "plugins/floating_point.hpp"

namespace strata::plugins {
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

// A library, and the changes of its static constructors to the processor's arithmetic.
struct Loaded {
  boost::dll::shared_library library;
  std::string changed;
};

Loaded load(const std::string& path) {
  try {
    using boost::dll::load_mode::rtld_local;
    using boost::dll::load_mode::rtld_now;
    const std::uint64_t before = floating_point_control();
    boost::dll::shared_library library(path, rtld_now | rtld_local);
    return {std::move(library), changed_floating_point(before)};
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
  static auto& loaded = *new std::map<std::string, Loaded>;  // [Note: Never unloaded]
  auto found = loaded.find(path);
  // Kept even if it is unusable, because its static constructors have run.
  if (found == loaded.end()) found = loaded.emplace(path, load(path)).first;
  const boost::dll::shared_library& library = found->second.library;
  if (!library.has(entry_symbol)) {
    throw DamagedFile(std::string("is not a plugin: it does not export ") + entry_symbol);
  }
  if (!found->second.changed.empty()) throw DamagedFile("when it was loaded, " + found->second.changed);
  const PluginEntry* const entry = library.get<decltype(strata_plugin_entry_v1)>(entry_symbol)();
  check_entry(entry, manifest);
  return *entry;
}

}  // namespace strata::plugins
