// `strata train`, and code shared with `strata eval`.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "group/launch_place.hpp"
#include "report/open_sinks.hpp"
#include "resolve/resolve_run.hpp"
#include "run/training.hpp"

namespace CLI {
class App;
}

namespace strata::cli {

struct CommandLine;

struct RunArguments {
  std::string config;                 // a file
  std::vector<std::string> settings;  // a.b=c, later ones win
  int nproc = 0;               // number of ranks to start here; 0: this process is one rank of its launcher's job
  bool oversubscribe = false;  // with nproc: allow many more ranks than this host has cores or memory for
  std::optional<std::string> resume;  // see checkpoint/resume.hpp
  std::string export_dtype;           // type of the exported weights, see export_type(); empty: float32
  report::ReportSettings report;
  std::string trace_file;                     // see step_trace.hpp; empty: nothing is traced
  std::int64_t trace_steps = 10;              // after the warm-up
  run::TrainingObserver* observer = nullptr;  // of a program that calls train_command(); null: none
  std::string turns;                          // see tools/train/turn.hpp; empty: none
  bool quiet_config = false;                  // do not log a ds_config's keys; for ranks, because their launcher has
  std::vector<std::string> command_line;      // this process's arguments without the program's name, for starting ranks
};

// Adds the options shared by train and eval.
void add_run_options(CommandLine& line, CLI::App& command, RunArguments& run);

// Logs the effect of every key of a ds_config.
void log_deepspeed(const resolve::ResolvedRun& run);

// Starts nproc ranks of this program with the same command line, with the values that `run` resolved for all of them.
// `answer`: see RankProgram. Returns the exit status.
int start_ranks(const RunArguments& arguments, const resolve::ResolvedRun& run, const std::string& answer = {});

// With nproc: checks the config, then starts that number of ranks of this program and waits for them. Without: trains
// as one rank. Returns the exit status.
int train_command(const RunArguments& arguments, std::ostream& out);

}  // namespace strata::cli
