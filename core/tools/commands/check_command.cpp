#include "tools/commands/check_command.hpp"

#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace strata::cli {

int check_command(const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("plugins check: cannot find the path of this program: " + error.message());
  const std::string program = (self.parent_path() / "strata_conformance").string();
  if (!std::filesystem::exists(program, error))
    throw EnvironmentError("plugins check: " + program +
                           " does not exist; it is part of Strata's SDK: install the SDK, or build all of Strata");
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> line;
  for (std::string& word : words) line.push_back(word.data());
  line.push_back(nullptr);
  execv(program.c_str(), line.data());
  throw EnvironmentError("plugins check: " + program + " cannot be started: " + std::strerror(errno));
}

}  // namespace strata::cli
