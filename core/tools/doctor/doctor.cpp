// `strata doctor`: prints this machine's resources and which plugins work on it.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <torch/headeronly/version.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/defaults.hpp"
#include "plugins/engine_plugins.hpp"
#include "text/size.hpp"
#include "tools/command/command.hpp"
#include "tools/ranks/host_resources.hpp"
#include "tools/ranks/machine.hpp"

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

std::string limit(int resource, const std::function<std::string(std::int64_t)>& text) {
  struct rlimit limits {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limits) != 0) return "unknown";
  const auto one = [&](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : text(static_cast<std::int64_t>(value));
  };
  return one(limits.rlim_cur) + (limits.rlim_cur == limits.rlim_max ? "" : ", at most " + one(limits.rlim_max));
}

// Whether the kernel lets this process use io_uring, which offload/nvme reads and writes with.
std::string io_uring() {
  std::array<std::byte, 256> parameters{};  // struct io_uring_params, which is smaller
  const long ring = syscall(SYS_io_uring_setup, 1, parameters.data());
  if (ring < 0) return std::string("not allowed: ") + std::strerror(errno);
  close(static_cast<int>(ring));
  return "ok";
}

// The variables that launchers tell a rank its place with, and those of Strata's own.
std::string launcher_variables() {
  std::string text;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string entry = *variable, name = entry.substr(0, entry.find('='));
    static const std::set<std::string> exact{"RANK",        "WORLD_SIZE",  "LOCAL_RANK",      "LOCAL_WORLD_SIZE",
                                             "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"};
    const bool shown = exact.contains(name) || name.starts_with("STRATA_") || name.starts_with("OMPI_COMM_WORLD_") ||
                       name.starts_with("PMI_") || name == "SLURM_PROCID" || name.starts_with("SLURM_NTASKS") ||
                       name.starts_with("SLURM_STEP_N") || name == "SLURM_LOCALID";
    if (shown) text += (text.empty() ? "" : " ") + entry;
  }
  return text.empty() ? "none" : text;
}

using Lines = std::vector<std::pair<std::string, std::string>>;

struct Report {
  std::vector<std::pair<std::string, Lines>> sections;
  bool can_train = false;
};

Lines machine() {
  const ranks::HostResources host = ranks::host_resources();
  const auto bytes = [](std::int64_t value) { return text::format_bytes(value); };
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  Lines lines{{"processor", ranks::processor_model()},
              {"cores", std::to_string(host.cores) + ", vector units:" + vector_units()},
              {"memory available", text::format_bytes(host.memory_available)}};
  if (host.container_limit > 0) lines.emplace_back("container's memory", text::format_bytes(host.container_limit));
  lines.insert(lines.end(), {{"disk free here", text::format_bytes(free_disk("."))},
                             {"shared memory free", text::format_bytes(free_disk("/dev/shm"))},
                             {"open files", limit(RLIMIT_NOFILE, number)},
                             {"processes", limit(RLIMIT_NPROC, number)},
                             {"locked memory", limit(RLIMIT_MEMLOCK, bytes)},
                             {"io_uring", io_uring()},
                             {"launcher's variables", launcher_variables()}});
  std::erase_if(lines, [](const auto& line) { return line.second.empty(); });
  return lines;
}

Report examine() {
  const std::shared_ptr<plugins::PluginRegistry> registry = plugins::open_registry("");
  Report report;
  report.sections.emplace_back("machine", machine());
  Lines& software = report.sections.emplace_back("software", Lines{}).second;
  software = {{"libtorch", TORCH_VERSION}, {"configs", config::configs_folder()}};
  for (const plugins::SearchFolder& folder : registry->folders())
    software.emplace_back("plugins", folder.folder.string() + " (" + folder.origin + ")" +
                                         (std::filesystem::is_directory(folder.folder) ? "" : ": not there"));
  Lines unusable, usable;
  const plugins::EnginePlugins plugins(registry);
  for (const plugins::FoundPlugin* found : registry->list()) {
    const std::string name = found->manifest.name.empty() ? found->file : plugins::full_name(found->manifest);
    if (!found->problem.empty()) {
      unusable.emplace_back(name, "cannot be used: " + found->problem);
      continue;
    }
    if (!found->shadowed_by.empty()) {
      unusable.emplace_back(name, "shadowed by " + found->shadowed_by);
      continue;
    }
    const std::string kind(to_string(found->manifest.kind));
    const std::string obstacle = plugins.obstacle(kind, found->manifest.name);
    if (!obstacle.empty()) {
      unusable.emplace_back(name, "not here: " + obstacle);
      continue;
    }
    report.can_train = report.can_train || found->manifest.kind == PluginKind::Device;
    const auto of_kind = std::ranges::find(usable, kind, &std::pair<std::string, std::string>::first);
    if (of_kind == usable.end())
      usable.emplace_back(kind, found->manifest.name);
    else
      of_kind->second += " " + found->manifest.name;
  }
  report.sections.emplace_back("plugins that cannot be used here", unusable);
  report.sections.emplace_back("plugins that can", usable);
  return report;
}

void print(const Report& report, std::ostream& out) {
  std::size_t widest = 0;
  for (const auto& [section, lines] : report.sections)
    for (const auto& [name, text] : lines) widest = std::max(widest, name.size());
  for (const auto& [section, lines] : report.sections) {
    if (!lines.empty()) out << section << "\n";
    for (const auto& [name, text] : lines)
      out << "  " << name << std::string(widest - name.size() + 2, ' ') << text << "\n";
  }
  out << (report.can_train ? "training can run here\n" : "training cannot run here: no device plugin can be used\n");
}

nlohmann::json to_json(const Report& report) {
  nlohmann::json json = {{"can_train", report.can_train}};
  for (const auto& [section, lines] : report.sections) {
    nlohmann::json& entries = json[section] = nlohmann::json::array();
    for (const auto& [name, text] : lines) entries.push_back({{"name", name}, {"text", text}});
  }
  return json;
}

// Returns 0 if training can run, else 3.
int doctor(const std::string& format, std::ostream& out) {
  const Report report = examine();
  if (format == "json")
    out << to_json(report).dump(2) << "\n";
  else
    print(report, out);
  return report.can_train ? 0 : 3;
}

}  // namespace

void add_doctor(CommandLine& line) {
  CLI::App& command =
      *line.app.add_subcommand("doctor", "Show this machine's resources and the plugins that work on it");
  const auto format = std::make_shared<std::string>("text");
  add_format(command, *format, {"text", "json"});
  line.on(command, [format] { return doctor(*format, std::cout); });
}

}  // namespace strata::cli
