// Commands that a program of the SDK carries out.
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/commands/command.hpp"

namespace strata::cli {

namespace {

// "plugins check".
std::string words_of(const CLI::App& command) {
  std::string words = command.get_name();
  for (const CLI::App* above = command.get_parent(); above->get_parent() != nullptr; above = above->get_parent())
    words = above->get_name() + " " + words;
  return words;
}

// Replaces this process by a program from the same folder.
[[noreturn]] void become(const std::string& command, const std::string& name, std::vector<std::string> arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError(command + ": cannot find the path of this program: " + error.message());
  const std::string program = (self.parent_path() / name).string();
  if (!std::filesystem::exists(program, error))
    throw EnvironmentError(command + ": " + program +
                           " does not exist; it is part of Strata's SDK: install the SDK, or build all of Strata");
  arguments.insert(arguments.begin(), program);
  std::vector<char*> line;
  for (std::string& word : arguments) line.push_back(word.data());
  line.push_back(nullptr);
  execv(program.c_str(), line.data());
  throw EnvironmentError(command + ": " + program + " cannot be started: " + std::strerror(errno));
}

}  // namespace

void add_sdk_command(CommandLine& line, CLI::App& parent, const std::string& name, const std::string& text,
                     const std::string& program, const std::string& passed_on) {
  CLI::App& command = *parent.add_subcommand(name, text);
  command.set_help_flag();
  command.prefix_command();
  line.on(command, [&parent, &command, program, passed_on]() -> int {
    std::vector<std::string> arguments = command.remaining();
    if (parent.count(passed_on) > 0)
      arguments.insert(arguments.begin(), {passed_on, parent[passed_on]->as<std::string>()});
    become(words_of(command), program, std::move(arguments));
  });
}

void add_bench(CommandLine& line) {
  add_sdk_command(line, line.app, "bench", "Measure one plugin's speed against the fastest possible", "strata_bench",
                  "--log-level");
}

}  // namespace strata::cli
