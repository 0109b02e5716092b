// What is known of a plugin before anything of it runs.
#include <algorithm>
#include <chrono>

#include "general/elf_file.hpp"
#include "general/general_cases.hpp"
#include "plugin_host/elf_section.hpp"
#include "plugin_host/library.hpp"
#include "plugin_host/registry.hpp"
#include "runner/process_facts.hpp"

namespace strata::conformance {

namespace {

using plugin_host::Manifest;

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
            std::string(name) + " is blank; give it in strata_add_plugin: users decide by it what they run");
  for (const OptionSpec& option : manifest.options)
    require(!is_blank(option.documentation),
            "the option " + option.name + " has no documentation: it is all that a user reads of it");
}

void scan_is_quick(Subject& subject) {
  if (is_mapped_here(subject.file())) throw Skip("an earlier case of this process has loaded it");
  constexpr double bound_ms = 100.0;
  double best_ms = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    plugin_host::PluginRegistry registry(std::vector<plugin_host::SearchFolder>{});
    registry.find_file(subject.file());
    best_ms =
        std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  require(!is_mapped_here(subject.file()), "reading the manifest loaded the library");
  require(best_ms < bound_ms, "the best of five readings took " + std::to_string(best_ms) + " ms, the bound is " +
                                  std::to_string(bound_ms) + " ms: every command reads every plugin's manifest");
}

void only_the_entry_is_exported(Subject& subject) {
  std::vector<std::string> names = ElfFile(subject.file()).exported();
  require(std::erase(names, "strata_plugin_entry_v1") == 1, "strata_plugin_entry_v1 is not exported");
  if (names.empty()) return;
  throw Failure("it exports " + std::to_string(names.size()) + " symbols beside its entry, the first is " +
                names.front() +
                "; two plugins with one name for different things then share one of them: link it with "
                "strata_add_plugin, which hides "
                "everything else");
}

// A plugin shares libtorch's objects with the engine: what it needs of libtorch is what the engine has loaded.
void one_libtorch_is_needed(Subject& subject) {
  const PluginKind kind = subject.manifest().kind;
  const bool may_need_cuda = kind == PluginKind::Device || kind == PluginKind::Communicator;
  for (const std::string& library : ElfFile(subject.file()).needed()) {
    const auto starts_with = [&](const char* name) { return library.starts_with(name); };
    require(!starts_with("libpython") && !starts_with("libtorch_python"),
            "it needs " + library + "; the engine runs without Python");
    const bool is_cuda = starts_with("libtorch_cuda") || starts_with("libc10_cuda");
    require(may_need_cuda || !is_cuda, "it needs " + library +
                                           ", which a machine without a GPU does not have; only a device or a "
                                           "communicator may, others call operators, which the device plugin brings");
    const bool is_torch = starts_with("libtorch") || starts_with("libc10");
    require(
        !is_torch || is_cuda || library == "libtorch_cpu.so" || library == "libc10.so",
        "it needs " + library + "; the engine's libtorch is libtorch_cpu.so and libc10.so, and there can be only one");
  }
}

void loads(Subject& subject) {
  try {
    plugin_host::load_library(subject.file(), subject.manifest());
  } catch (const plugin_host::DamagedFile& damage) {
    throw Failure(std::string("it ") + damage.what());
  }
}

}  // namespace

bool lacks_a_library(const std::string& text) {
  return text.find("cannot open shared object file") != std::string::npos;
}

std::vector<Case> file_cases() {
  return {
      {"general.manifest", "Its file says what it is, by whom, under which license, and what each option means.",
       manifest_is_complete},
      {"general.scan", "Its manifest is read in 100 ms and without loading it.", scan_is_quick},
      {"general.exports", "It exports its entry and nothing else.", only_the_entry_is_exported},
      {"general.needs",
       "It needs the engine's libtorch and no other, no Python, and CUDA only as a device or communicator.",
       one_libtorch_is_needed},
      {loading_case, "It loads, and its entry and its manifest agree.", loads},
  };
}

}  // namespace strata::conformance
