// `strata launch`.
#include <unistd.h>
#include <strata/error.hpp>

#include <filesystem>
#include <sstream>

#include "group/launch_place.hpp"
#include "tools/command/command.hpp"
#include "tools/ranks/run_ranks.hpp"

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
    throw UserError("launch: {}{}", program,
                    std::filesystem::exists(program) ? " is not an executable program" : " does not exist");
  }
  std::istringstream folders(group::process_environment("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && can_run(std::filesystem::path(folder) / program))
      return std::filesystem::path(folder) / program;
  throw UserError("launch: no program {} in PATH; for a program in this folder write ./{}", program, program);
}

// Starts `ranks` processes of a program that trains with <strata/engine.hpp> and waits for them. `command` is the
// program, as a path or a name on PATH, and its arguments. Returns the exit status. Throws UserError if the program
// does not exist or if this process is itself a rank of a launcher.
int launch_program(int ranks, bool oversubscribe, const std::vector<std::string>& command) {
  if (command.empty())
    throw UserError("launch: no program given; use strata launch --nproc {} PROGRAM [ARGUMENT ...]", ranks);
  const group::LaunchPlace place = group::read_environment();
  if (place.launcher != group::Launcher::None)
    throw UserError(
        "launch: this process is rank {} of a job that {} started; start the program directly, without `strata launch`",
        place.rank, group::name_of(place.launcher));
  ranks::RankProgram program;
  program.ranks = ranks;
  program.oversubscribe = oversubscribe;
  program.program = path_of(command.front());
  program.arguments.assign(command.begin() + 1, command.end());
  return ranks::run_ranks(program);
}

}  // namespace

void add_launch(CommandLine& line) {
  CLI::App& launch = *line.app.add_subcommand("launch", "Start your own C++ program on several ranks");
  static int nproc = 0;
  static bool oversubscribe = false;
  add_nproc(launch, nproc, oversubscribe)->required();
  launch.prefix_command();
  launch.footer(
      "The program and its arguments follow the options; every rank gets the same arguments. The program trains with "
      "<strata/engine.hpp>, and also runs alone as one rank, or under torchrun, mpirun or srun. MASTER_PORT is the "
      "port of the engine's store; a program that also uses stores of c10d needs another port for them.\n"
      "  strata launch --nproc 2 ./program program.yaml\n"
      "  torchrun --no-python --nproc-per-node 2 ./program program.yaml");
  line.on(launch, [command = &launch] { return launch_program(nproc, oversubscribe, command->remaining()); });
}

}  // namespace strata::cli
