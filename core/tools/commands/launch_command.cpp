#include "tools/commands/launch_command.hpp"

#include <unistd.h>
#include <strata/error.hpp>

#include <filesystem>
#include <sstream>

#include "group/launch_place.hpp"
#include "tools/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

bool can_run(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

// Finds a program as a shell does.
std::string path_of(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (can_run(program)) return program;
    throw UserError("launch: " + program +
                    (std::filesystem::exists(program) ? " is not an executable program" : " does not exist"));
  }
  std::istringstream folders(launch::process_environment("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && can_run(std::filesystem::path(folder) / program))
      return std::filesystem::path(folder) / program;
  throw UserError("launch: no program " + program + " in PATH; for a program in this folder write ./" + program);
}

}  // namespace

int launch_command(int ranks, bool oversubscribe, const std::vector<std::string>& command) {
  if (command.empty())
    throw UserError("launch: no program given; use strata launch --nproc " + std::to_string(ranks) +
                    " PROGRAM [ARGUMENT ...]");
  const launch::LaunchPlace place = launch::read_environment();
  if (place.launcher != launch::Launcher::None)
    throw UserError("launch: this process is rank " + std::to_string(place.rank) + " of a job that " +
                    name_of(place.launcher) + " started; start the program directly, without `strata launch`");
  launch::RankProgram program;
  program.ranks = ranks;
  program.oversubscribe = oversubscribe;
  program.program = path_of(command.front());
  program.arguments.assign(command.begin() + 1, command.end());
  return launch::run_ranks(program);
}

}  // namespace strata::cli
