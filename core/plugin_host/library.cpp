#include "plugin_host/library.hpp"

#include <link.h>

#include <boost/dll/shared_library.hpp>
#include <boost/system/system_error.hpp>
#include <map>
#include <string_view>

#include "plugin_host/elf_section.hpp"

namespace strata::plugin_host {
namespace {

constexpr const char* entry_symbol = "strata_plugin_entry_v1";

// The linker's own words, as one line. Boost puts its own in front and behind.
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

// The file name of an OpenMP run-time library of clang's family (clang's, Intel's) that this process has loaded, or nothing.
std::string clang_openmp() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        const std::string_view path = object->dlpi_name;
        const std::string_view name = path.substr(path.rfind('/') + 1);
        if (name.starts_with("libomp") || name.starts_with("libiomp")) *static_cast<std::string*>(result) = name;
        return 0;
      },
      &found);
  return found;
}

struct LoadedLibrary {
  boost::dll::shared_library library;
  std::string openmp;  // the second OpenMP run-time library that came with it
};

// [Note: One OpenMP] libtorch and Strata run on GCC's OpenMP, libgomp. at::parallel_for is compiled into a plugin: with
// clang -fopenmp its threads are libomp's, while "which thread am I, of how many" is answered by the libgomp that was
// loaded first: 0 of 1, to each of them. Each then computes the whole range, into the same memory, at the same time.
// Where libomp was there before (a program started on it) it answers for both, and all is well.
LoadedLibrary load_watched(const std::string& path) {
  const std::string before = clang_openmp();
  LoadedLibrary loaded{load(path), ""};
  if (before.empty()) loaded.openmp = clang_openmp();
  return loaded;
}

void check_entry(const PluginEntry* entry, const Manifest& manifest) {
  if (entry == nullptr) throw DamagedFile(std::string("returns no entry from ") + entry_symbol);
  if (entry->struct_size < sizeof(PluginEntry)) {
    throw DamagedFile("has an entry of " + std::to_string(entry->struct_size) +
                      " bytes, this Strata expects at least " + std::to_string(sizeof(PluginEntry)));
  }
  const AbiVersion built{entry->abi_major, entry->abi_minor};
  if (built.major != manifest.abi.major || built.minor != manifest.abi.minor) {
    throw DamagedFile("disagrees with itself: its entry says plugin ABI " + to_string(built) + ", its manifest " +
                      to_string(manifest.abi));
  }
  if (entry->manifest == nullptr || manifest.text != entry->manifest) {
    throw DamagedFile("disagrees with itself: its entry names another manifest than section .strata holds");
  }
  if (entry->create == nullptr) throw DamagedFile("has an entry without a factory");
}

}  // namespace

const PluginEntry& load_library(const std::string& path, const Manifest& manifest) {
  static auto& loaded = *new std::map<std::string, LoadedLibrary>;  // [Note: Never unloaded]
  auto known = loaded.find(path);
  // Kept also when it turns out to be unusable: its static constructors have run.
  if (known == loaded.end()) known = loaded.emplace(path, load_watched(path)).first;
  const auto& [library, openmp] = known->second;
  if (!openmp.empty()) {
    throw DamagedFile("was built with clang's OpenMP and needs " + openmp +
                      ", and this process runs on GCC's, libgomp: beside it parallel loops compute wrong values; build "
                      "the plugin with g++, or without -fopenmp");
  }
  if (!library.has(entry_symbol)) {
    throw DamagedFile(std::string("is no plugin: it does not export ") + entry_symbol);
  }
  const PluginEntry* const entry = library.get<decltype(strata_plugin_entry_v1)>(entry_symbol)();
  check_entry(entry, manifest);
  return *entry;
}

}  // namespace strata::plugin_host
