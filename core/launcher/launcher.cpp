// bin/strata of an installed tree. The program proper, libexec/strata/strata, is linked to libtorch, which the dynamic
// linker looks for before any code runs; so this one, which needs the C++ library only, says where it is: in the folder
// that STRATA_TORCH_DIR names, else where it was when Strata was built.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace {

namespace fs = std::filesystem;
constexpr int usage_error = 2, environment_error = 3;  // as the program's own statuses

int fail(int status, const std::string& text) {
  std::cerr << "strata: " << text << "\n";
  return status;
}

// "2.11.0" of a folder with libtorch's headers, else nothing.
std::string version_of(const fs::path& torch) {
  std::ifstream header(torch / "include/torch/headeronly/version.h");
  std::string word, name, value, version;
  while (header >> word) {
    if (word != "#define" || !(header >> name >> value)) continue;
    for (const char* const part : {"MAJOR", "MINOR", "PATCH"})
      if (name == std::string("TORCH_VERSION_") + part) version += (version.empty() ? "" : ".") + value;
  }
  return version;
}

}  // namespace

int main(int, char** arguments) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(environment_error, "cannot find itself: " + error.message());
  const fs::path program = self.parent_path().parent_path() / "libexec/strata/strata";
  const char* const chosen = std::getenv("STRATA_TORCH_DIR");
  const fs::path torch = chosen != nullptr && *chosen != '\0' ? chosen : STRATA_BUILT_TORCH_DIR;
  if (!fs::exists(torch / "lib/libtorch_cpu.so", error)) {
    const std::string wanted = "a libtorch " STRATA_BUILT_TORCH_VERSION;
    if (chosen != nullptr && *chosen != '\0')
      return fail(usage_error, "STRATA_TORCH_DIR is " + torch.string() +
                                   ", which has no lib/libtorch_cpu.so; set it to the folder of " + wanted +
                                   ", the one that holds lib and include");
    return fail(environment_error, "libtorch is not at " + torch.string() +
                                       " any more; set STRATA_TORCH_DIR to the folder of " + wanted +
                                       ", the one that holds lib (of Python's torch: the folder of torch/__init__.py)");
  }
  const std::string version = version_of(torch);
  if (!version.empty() && version != STRATA_BUILT_TORCH_VERSION)
    return fail(usage_error, "STRATA_TORCH_DIR is " + torch.string() + ", which holds libtorch " + version +
                                 "; this Strata was built with " + STRATA_BUILT_TORCH_VERSION + " and takes no other");
  if (chosen != nullptr && *chosen != '\0') {
    const char* const former = std::getenv("LD_LIBRARY_PATH");
    const std::string path =
        (torch / "lib").string() + (former != nullptr && *former != '\0' ? ":" + std::string(former) : "");
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  }
  execv(program.c_str(), arguments);
  return fail(environment_error, program.string() + " cannot be started: " + std::strerror(errno));
}
