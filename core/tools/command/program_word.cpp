// The words of `strata`, and those that programs of their own carry out.
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "interface/src/system_error.hpp"
#include "tools/command/command.hpp"
#include "tools/launcher/words.hpp"
#include "tools/ranks/run_ranks.hpp"

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
[[noreturn]] void become(const std::string& command, const Program& chosen, std::vector<std::string> arguments) {
  std::error_code error;
  const std::string program = (ranks::running_executable().parent_path() / chosen.name).string();
  if (!std::filesystem::exists(program, error))
    throw EnvironmentError("{}: {} does not exist; install the package {}, which contains it, or build all of Strata",
                           command, program, chosen.package);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> line;
  for (std::string& word : arguments) line.push_back(word.data());
  line.push_back(nullptr);
  execv(program.c_str(), line.data());
  throw EnvironmentError("{}: {} cannot be started: {}", command, program, describe_errno(errno));
}

}  // namespace

void add_program(CommandLine& line, CLI::App& parent, const std::string& name, const std::string& text,
                 const Program& program) {
  CLI::App& command = *parent.add_subcommand(name, text);
  command.set_help_flag();
  command.prefix_command();
  line.on(command, [&parent, &command, program]() -> int {
    std::vector<std::string> arguments = command.remaining();
    if (const std::string& option = program.passed_on; !option.empty() && parent.count(option) > 0)
      arguments.insert(arguments.begin(), {option, parent[option]->as<std::string>()});
    become(words_of(command), program, std::move(arguments));
  });
}

#define STRATA_DECLARE(word) void add_##word(CommandLine&);
#define STRATA_NOTHING(word, package, text)
STRATA_WORDS(STRATA_DECLARE, STRATA_NOTHING)

void add_words(CommandLine& line) {
#define STRATA_ADD_OWN(word) add_##word(line);
#define STRATA_ADD_PROGRAM(word, package, text) \
  add_program(line, line.app, #word, text, {"strata_" #word, package, "--log-level"});
  STRATA_WORDS(STRATA_ADD_OWN, STRATA_ADD_PROGRAM)
}

}  // namespace strata::cli
