// bin/strata. The programs in libexec/strata are linked to libtorch, which the dynamic linker looks for before any code
// runs; so this one, which needs the C++ library only, finds it and then becomes the program of the command. The first
// of these that is there is taken; StrataConfig.cmake looks in the same places (StrataTorch.cmake):
//   1. the folder that STRATA_TORCH_DIR names, and then no other
//   2. the folder that the build wrote into share/strata/torch_dir; packages have no such file
//   3. where bootstrap.sh unpacks it: strata/torch-VERSION/torch below XDG_CACHE_HOME, or below ~/.cache
//   4. where bootstrap.sh --system does: /opt/strata/torch-VERSION/torch
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/printable.hpp"
#include "text/standard_streams.hpp"
#include "tools/launcher/words.hpp"

namespace {

namespace fs = std::filesystem;
constexpr int usage_error = 2, environment_error = 3;  // as the program's own statuses

int fail(int status, const std::string& text) {
  std::cerr << "strata: " << strata::text::printable(text) << "\n";
  return status;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool holds_torch(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "lib/libtorch_cpu.so", error);
}

// The first 64 KiB of a regular file, more than those that are read here have; nothing of any other.
std::string beginning_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::size_t{64} << 10, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

// The version, such as 2.1.0, of a folder with libtorch's headers, else nothing.
std::string version_of(const fs::path& torch) {
  std::istringstream header(beginning_of(torch / "include/torch/headeronly/version.h"));
  std::string word, name, value, version;
  while (header >> word) {
    if (word != "#define" || !(header >> name >> value)) continue;
    for (const char* const part : {"MAJOR", "MINOR", "PATCH"})
      if (name == std::string("TORCH_VERSION_") + part) version += (version.empty() ? "" : ".") + value;
  }
  return version;
}

// Places 2 to 4.
std::vector<fs::path> usual_places(const fs::path& prefix) {
  std::vector<fs::path> places;
  std::istringstream recorded(beginning_of(prefix / "share/strata/torch_dir"));
  for (std::string line; std::getline(recorded, line) && !line.empty();) places.emplace_back(line);
  const fs::path unpacked = "strata/torch-" STRATA_BUILT_TORCH_VERSION "/torch";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    places.push_back(cache / unpacked);
  else if (const std::string home = variable("HOME"); !home.empty())
    places.push_back(fs::path(home) / ".cache" / unpacked);
  places.push_back("/opt" / unpacked);
  return places;
}

// `ulimit -v` is too low for libtorch, which would end the process without a message.
bool lacks_address_space(const fs::path& torch, std::uintmax_t& least) {
  constexpr std::uintmax_t beside = std::uintmax_t{64} << 20;  // other libraries, stacks of threads
  std::error_code error;
  least = fs::file_size(torch / "lib/libtorch_cpu.so", error) + beside;
  rlimit limit{};
  return !error && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < least;
}

// The program of its own in `folder` that carries the word out; empty for any other word. Where it is not installed,
// libexec/strata/strata names the package that has it.
fs::path program_of(std::string_view word, const fs::path& folder) {
  std::error_code error;
  for (const strata::cli::ProgramWord& one : strata::cli::program_words)
    if (const fs::path program = folder / ("strata_" + std::string(word)); one.name == word)
      return fs::exists(program, error) ? program : fs::path();
  return {};
}

// Returns only where the program of the command cannot take over.
int start(int count, char** arguments) {
  strata::text::open_standard_streams();  // the program inherits them, before libraries open files
  std::error_code error;
  if (const fs::path folder = fs::current_path(error); error)  // libtorch ends a program there before its main() begins
    return fail(environment_error,
                "the working folder cannot be used: " + error.message() + "; change to one that exists");
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(environment_error, "cannot find the path of this program: " + error.message());
  const fs::path prefix = self.parent_path().parent_path();
  const std::string chosen = variable("STRATA_TORCH_DIR");
  const std::string wanted = "a libtorch " STRATA_BUILT_TORCH_VERSION ", the one that holds lib";
  fs::path torch = chosen;
  std::string looked;
  if (chosen.empty())
    for (const fs::path& place : usual_places(prefix)) {
      looked += (looked.empty() ? "" : ", ") + place.string();
      if (torch.empty() && holds_torch(place)) torch = place;
    }
  if (torch.empty())
    return fail(environment_error, "libtorch " STRATA_BUILT_TORCH_VERSION " is in none of " + looked + ": run `" +
                                       (prefix / "libexec/strata/bootstrap.sh").string() +
                                       " --for run` to install it, or set STRATA_TORCH_DIR to the folder of " + wanted +
                                       " (of Python's torch: the folder of torch/__init__.py)");
  if (!holds_torch(torch))
    return fail(usage_error, "STRATA_TORCH_DIR is " + torch.string() +
                                 ", which has no lib/libtorch_cpu.so; set it to the folder of " + wanted);
  const std::string version = version_of(torch);
  if (!version.empty() && version != STRATA_BUILT_TORCH_VERSION)
    return fail(usage_error, torch.string() + " holds libtorch " + version + "; this Strata was built with " +
                                 STRATA_BUILT_TORCH_VERSION +
                                 " and works with no other: set STRATA_TORCH_DIR to the folder of " + wanted);
  if (std::uintmax_t least = 0; lacks_address_space(torch, least))
    return fail(environment_error, "the limit of address space is too small for libtorch; raise `ulimit -v` to " +
                                       std::to_string(least >> 10) + " or more, or to unlimited");
  const std::string former = variable("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", ((torch / "lib").string() + (former.empty() ? "" : ":" + former)).c_str(), 1);
  std::string program = prefix / "libexec/strata/strata";
  if (const fs::path of_sdk = program_of(count > 1 ? arguments[1] : "", prefix / "libexec/strata"); !of_sdk.empty()) {
    program = of_sdk;
    *++arguments = program.data();
  }
  execv(program.c_str(), arguments);
  return fail(environment_error, program + " cannot be started: " + std::strerror(errno));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return start(count, arguments);
  } catch (const std::bad_alloc&) {
    return fail(environment_error, "the machine is out of memory");
  } catch (const std::exception& error) {
    return fail(environment_error, std::string("this command cannot be started: ") + error.what());
  }
}
