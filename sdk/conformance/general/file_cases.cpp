// Cases on the plugin's file, before any of its code runs.
#include <algorithm>

#include "conformance/general/elf_file.hpp"
#include "conformance/general/general_cases.hpp"
#include "plugins/elf_section.hpp"
#include "plugins/library.hpp"

namespace strata::conformance {

namespace {

using plugins::Manifest;

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\n") == std::string::npos;
}

void manifest_is_complete(Subject& subject) {
  const Manifest& manifest = subject.manifest();
  const std::pair<const char*, const std::string*> texts[] = {{"VERSION", &manifest.version},
                                                              {"DESCRIPTION", &manifest.description},
                                                              {"AUTHOR", &manifest.author},
                                                              {"LICENSE", &manifest.license}};
  for (const auto& [name, text] : texts)
    require(!is_blank(*text),
            std::string(name) + " is blank; set it in strata_add_plugin: users see it in strata plugins list and show");
  for (const OptionSpec& option : manifest.options)
    require(!is_blank(option.documentation),
            "the option " + option.name + " has no documentation, which is all that users see of it");
}

void only_the_entry_is_exported(Subject& subject) {
  std::vector<std::string> names = ElfFile(subject.file()).exported();
  require(std::erase(names, "strata_plugin_entry_v1") == 1, "strata_plugin_entry_v1 is not exported");
  if (names.empty()) return;
  throw Failure("the library exports " + std::to_string(names.size()) +
                " symbols besides the plugin entry, the first is " + names.front() +
                "; symbols of the same name in two plugins would clash; build it with strata_add_plugin, which hides "
                "all other symbols");
}

// A plugin shares libtorch's objects with the engine, so it must link the libtorch that the engine has loaded.
void one_libtorch_is_needed(Subject& subject) {
  const PluginKind kind = subject.manifest().kind;
  const bool may_need_cuda = kind == PluginKind::Device || kind == PluginKind::Communicator;
  for (const std::string& library : ElfFile(subject.file()).needed()) {
    const auto starts_with = [&](const char* name) { return library.starts_with(name); };
    require(!starts_with("libpython") && !starts_with("libtorch_python"),
            "the library needs " + library + ", but the engine runs without Python");
    const bool is_cuda = starts_with("libtorch_cuda") || starts_with("libc10_cuda");
    require(may_need_cuda || !is_cuda, "it needs " + library +
                                           ", which is missing on machines without a GPU; only device and "
                                           "communicator plugins may link it, others call libtorch's operators");
    const bool is_torch = starts_with("libtorch") || starts_with("libc10");
    require(!is_torch || is_cuda || library == "libtorch_cpu.so" || library == "libc10.so",
            "it needs " + library + "; link only the engine's libtorch, libtorch_cpu.so and libc10.so");
  }
}

void loads(Subject& subject) {
  try {
    plugins::load_library(subject.file(), subject.manifest());
  } catch (const plugins::DamagedFile& damage) {
    throw Failure(std::string("it ") + damage.what());
  }
}

}  // namespace

bool lacks_a_library(const std::string& text) {
  return text.find("cannot open shared object file") != std::string::npos;
}

std::vector<Case> file_cases() {
  return {
      {"general.manifest", "The manifest gives version, description, author and license, and documents every option.",
       manifest_is_complete},
      {"general.exports", "The library exports only the plugin entry.", only_the_entry_is_exported},
      {"general.needs",
       "The library links only the engine's libtorch, no Python, and CUDA only for a device or communicator.",
       one_libtorch_is_needed},
      {loading_case, "The library loads, and its entry matches its manifest.", loads},
  };
}

}  // namespace strata::conformance
