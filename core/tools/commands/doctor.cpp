// `strata doctor`: prints this machine's resources and which plugins work on it.
#include <sys/statvfs.h>
#include <torch/headeronly/version.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <filesystem>
#include <iostream>

#include "config/defaults.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "text/size.hpp"
#include "tools/commands/command.hpp"
#include "tools/launch/host_resources.hpp"

namespace strata::cli {

namespace {

std::int64_t free_disk(const char* path) {
  struct statvfs status {};
  return statvfs(path, &status) == 0
             ? static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize)
             : -1;
}

std::string vector_units() {
  std::string units;
  if (__builtin_cpu_supports("avx2")) units += " avx2";
  if (__builtin_cpu_supports("avx512f")) units += " avx512";
  return units.empty() ? " none known" : units;
}

// Returns 0 if training can run, else 3.
int doctor(std::ostream& out) {
  const std::shared_ptr<plugin_host::PluginRegistry> registry = plugin_host::open_registry("");
  const auto line = [&](const std::string& what, const std::string& text) {
    out << "  " << what << std::string(what.size() < 24 ? 24 - what.size() : 1, ' ') << text << "\n";
  };
  const launch::HostResources host = launch::host_resources();
  out << "machine\n";
  line("cores", std::to_string(host.cores) + ", vector units:" + vector_units());
  line("memory available", config::format_bytes(host.memory_available));
  if (host.container_limit > 0) line("container's memory", config::format_bytes(host.container_limit));
  line("disk free here", config::format_bytes(free_disk(".")));
  line("shared memory free", config::format_bytes(free_disk("/dev/shm")));
  out << "software\n";
  line("libtorch", TORCH_VERSION);
  line("configs", config::configs_folder());
  for (const plugin_host::SearchFolder& folder : registry->folders())
    line("plugins", folder.folder.string() + " (" + folder.origin + ")" +
                        (std::filesystem::is_directory(folder.folder) ? "" : ": not there"));

  out << "plugins\n";
  const plugin_host::EnginePlugins plugins(registry);
  bool device = false;
  for (const plugin_host::FoundPlugin* found : registry->list()) {
    const std::string name = found->manifest.name.empty() ? found->file : plugin_host::full_name(found->manifest);
    if (!found->problem.empty()) {
      line(name, "cannot be used: " + found->problem);
      continue;
    }
    if (!found->shadowed_by.empty()) {
      line(name, "shadowed by " + found->shadowed_by);
      continue;
    }
    const std::string obstacle = plugins.obstacle(std::string(to_string(found->manifest.kind)), found->manifest.name);
    device = device || (found->manifest.kind == PluginKind::Device && obstacle.empty());
    line(name, obstacle.empty() ? "ok" : "not here: " + obstacle);
  }
  out << (device ? "training can run here\n" : "training cannot run here: no device plugin can be used\n");
  return device ? 0 : 3;
}

}  // namespace

void add_doctor(CommandLine& line) {
  line.on(*line.app.add_subcommand("doctor", "Show this machine's resources and which plugins work on it"),
          [] { return doctor(std::cout); });
}

}  // namespace strata::cli
