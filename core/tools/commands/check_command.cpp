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
  if (error) throw EnvironmentError("plugins check: this program cannot find itself: " + error.message());
  const std::string program = (self.parent_path() / "strata_conformance").string();
  if (!std::filesystem::exists(program, error))
    throw EnvironmentError("plugins check: there is no " + program +
                           "; it comes with Strata's SDK: install that, or build Strata whole");
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> line;
  for (std::string& word : words) line.push_back(word.data());
  line.push_back(nullptr);
  execv(program.c_str(), line.data());
  throw EnvironmentError("plugins check: " + program + " cannot be started: " + std::strerror(errno));
}

}  // namespace strata::cli
