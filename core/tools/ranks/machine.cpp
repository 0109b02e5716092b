#include "tools/ranks/machine.hpp"

#include <strata/format.hpp>

#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <fstream>

#include "text/size.hpp"
#include "tools/ranks/host_resources.hpp"

namespace strata::ranks {

std::string processor_model(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::string machine() {
  const std::string model = processor_model();
  struct sysinfo memory {};
  struct utsname kernel {};
  sysinfo(&memory);
  uname(&kernel);
  return format("{}{} cores, {}, {} {} {}", model.empty() ? "" : model + ", ", host_resources().cores,
                text::format_bytes(static_cast<std::int64_t>(memory.totalram) * memory.mem_unit), kernel.sysname,
                kernel.release, kernel.machine);
}

}  // namespace strata::ranks
