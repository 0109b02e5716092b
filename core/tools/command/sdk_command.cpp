// Commands that a program of sdk/ carries out.
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "interface/src/system_error.hpp"
#include "tools/command/command.hpp"
#include "tools/launcher/sdk_commands.hpp"
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
[[noreturn]] void become(const std::string& command, const SdkProgram& chosen, std::vector<std::string> arguments) {
  std::error_code error;
  const std::string program = (launch::running_executable().parent_path() / chosen.name).string();
  if (!std::filesystem::exists(program, error))
    throw EnvironmentError(command + ": " + program + " does not exist; install the package " + chosen.package +
                           ", which brings it, or build all of Strata");
  arguments.insert(arguments.begin(), program);
  std::vector<char*> line;
  for (std::string& word : arguments) line.push_back(word.data());
  line.push_back(nullptr);
  execv(program.c_str(), line.data());
  throw EnvironmentError(command + ": " + program + " cannot be started: " + describe_errno(errno));
}

}  // namespace

void add_sdk_command(CommandLine& line, CLI::App& parent, const std::string& name, const std::string& text,
                     const SdkProgram& program) {
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

namespace {

void add_top_command(CommandLine& line, std::string_view name) {
  const auto* const command =
      std::find_if(sdk_commands.begin(), sdk_commands.end(), [&](const SdkCommand& one) { return one.name == name; });
  add_sdk_command(line, line.app, std::string(name), std::string(command->text),
                  {"strata_" + std::string(name), std::string(command->package), "--log-level"});
}

}  // namespace

void add_bench(CommandLine& line) {
  add_top_command(line, "bench");
}

void add_compare(CommandLine& line) {
  add_top_command(line, "compare");
}

void add_plan(CommandLine& line) {
  add_top_command(line, "plan");
}

void add_sample(CommandLine& line) {
  add_top_command(line, "sample");
}

void add_schedule(CommandLine& line) {
  add_top_command(line, "schedule");
}

void add_trace(CommandLine& line) {
  add_top_command(line, "trace");
}

void add_verify(CommandLine& line) {
  add_top_command(line, "verify");
}

void add_data(CommandLine& line) {
  add_top_command(line, "data");
}

}  // namespace strata::cli
