// `strata` as a worker, for tests of many commands: each runs in a fork of this process, which has its libraries
// already. To load them takes longer than most commands.
//
// Reads one JSON object a line: {"words": ["eval", "c.yaml"], "environment": {"RANK": "0"}, "output": FOLDER}. The
// command's standard output and error go to FOLDER/stdout and FOLDER/stderr. Answers with a line that is its exit
// status.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/deepspeed.hpp>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/commands/carry_out.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/leave.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void redirect(const std::string& file, int to) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (opened < 0 || dup2(opened, to) < 0) _exit(71);
  close(opened);
}

[[noreturn]] void carry_out_request(const nlohmann::json& request) {
  const std::string folder = request["output"];
  redirect(folder + "/stdout", STDOUT_FILENO);
  redirect(folder + "/stderr", STDERR_FILENO);
  redirect("/dev/null", STDIN_FILENO);
  for (const auto& [name, value] : request["environment"].items())
    setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  CLI::App app("", "strata");
  app.require_subcommand(1);
  CommandLine line{app, request["words"]};
  for (AddCommand* const add : {STRATA_COMMANDS}) add(line);
  leave(carry_out(line));
}

}  // namespace

int main() {
  accept_deepspeed_configs();
  for (std::string text; std::getline(std::cin, text);) {
    const nlohmann::json request = nlohmann::json::parse(text);
    const pid_t child = fork();
    if (child == 0) carry_out_request(request);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 71;
    std::cout << (WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) << std::endl;
  }
}
