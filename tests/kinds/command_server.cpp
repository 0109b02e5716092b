// Carries out commands of `strata`, each in a process that is forked when all libraries are loaded: for tests that walk
// many members of a kind, as loading takes longer than most commands do.
//
// Reads one JSON object a line: {"timeout_s": 60, "processes": [{"arguments": ["train", ...], "environment": {"RANK":
// "0"}, "folder": PATH, "output": PATH, "errors": PATH}]}. The processes run side by side, each in its folder, and
// write to their outputs; standard error too where "errors" is left out. Answers with a line of their exit statuses,
// [0, 130]; one that a signal ended has 128 and its number. Those that run longer are killed, and have the status -1.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#define main strata_main
#include "tools/main.cpp"
#undef main

namespace {

void redirect(const std::string& file, int to) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (opened < 0 || dup2(opened, to) < 0) _exit(125);
  close(opened);
}

[[noreturn]] void carry_out_here(const nlohmann::json& process) {
  setpgid(0, 0);
  redirect(process["output"], STDOUT_FILENO);
  if (process.contains("errors"))
    redirect(process["errors"], STDERR_FILENO);
  else
    dup2(STDOUT_FILENO, STDERR_FILENO);
  if (chdir(process["folder"].get<std::string>().c_str()) != 0) _exit(125);
  close(0);
  open("/dev/null", O_RDONLY);
  for (const auto& [name, value] : process["environment"].items())
    setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  auto words = process["arguments"].get<std::vector<std::string>>();
  words.insert(words.begin(), "strata");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  strata_main(static_cast<int>(words.size()), arguments.data());
  _exit(125);
}

nlohmann::json statuses_of(const nlohmann::json& request) {
  std::vector<pid_t> running;
  for (const nlohmann::json& process : request["processes"]) {
    const pid_t child = fork();
    if (child == 0) carry_out_here(process);
    running.push_back(child);
  }
  std::vector<int> statuses(running.size(), -1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(request["timeout_s"].get<double>());
  for (std::size_t left = running.size(); left > 0;) {
    const bool late = std::chrono::steady_clock::now() > end;
    for (std::size_t i = 0; i < running.size(); ++i) {
      int status = 0;
      if (running[i] <= 0) continue;
      if (late) kill(-running[i], SIGKILL);
      if (waitpid(running[i], &status, late ? 0 : WNOHANG) != running[i]) continue;
      if (!late) statuses[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      running[i] = 0;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return statuses;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << statuses_of(nlohmann::json::parse(line)).dump() << std::endl;
}
