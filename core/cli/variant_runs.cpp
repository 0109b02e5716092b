#include "cli/variant_runs.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace strata::cli {

namespace {

// Runs this program with its output in a file, and returns its exit status.
int execute(std::vector<std::string> words, const std::string& output) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw EnvironmentError(output + ": " + std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) _exit(127);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  close(file);
  if (child < 0) throw EnvironmentError(std::string("cannot start a run: ") + std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

double number(const nlohmann::json& json) { return json.is_null() ? NAN : json.get<double>(); }

}  // namespace

VariantRuns::VariantRuns(int nproc, std::int64_t steps, std::int64_t warmup_steps)
    : nproc_(nproc), steps_(steps), warmup_steps_(warmup_steps) {
  std::string name = (std::filesystem::temp_directory_path() / "strata-compare-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw EnvironmentError("cannot make a folder for the runs, " + name + ": " + std::strerror(errno));
  folder_ = name;
}

VariantRuns::~VariantRuns() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> VariantRuns::command(const ComparedRun& run, bool recorded) const {
  std::vector<std::string> words{"strata", "train", run.config, "--quiet", "--summary", file("summary.json")};
  if (nproc_ > 0) words.insert(words.end(), {"--nproc", std::to_string(nproc_)});
  if (recorded) words.insert(words.end(), {"--metrics", file("metrics.jsonl"), "--digests"});
  words.insert(words.end(), {"--warmup-steps", std::to_string(warmup_steps_)});
  for (const std::string& setting : run.settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"--set", "train.steps=" + std::to_string(steps_ + warmup_steps_)});
  return words;
}

void VariantRuns::train(const ComparedRun& run, bool recorded) const {
  const int status = execute(command(run, recorded), file("output"));
  if (status == 0) return;
  std::ifstream stream(file("output"));
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with("strata: ")) text.erase(0, 8);
  throw EnvironmentError("the run with " + run.name + " ended with exit status " + std::to_string(status) + ": " + text);
}

void VariantRuns::record(const ComparedRun& run, report::ComparedVariant& variant) const {
  train(run, true);
  std::ifstream summary(file("summary.json"));
  variant.summary = nlohmann::json::parse(summary);
  std::ifstream metrics(file("metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    variant.losses.push_back(number(record.at("loss")));
    variant.norms.push_back(number(record.at("grad_norm")));
    auto& gradients = variant.gradients.emplace_back();
    for (const auto& [name, sums] : record.at("gradients").items()) gradients[name] = {number(sums.at(0)), number(sums.at(1))};
  }
}

void VariantRuns::time(const ComparedRun& run, report::ComparedVariant& variant) const {
  train(run, false);
  std::ifstream summary(file("summary.json"));
  variant.step_seconds.push_back(nlohmann::json::parse(summary).at("median_step_s"));
}

}  // namespace strata::cli
