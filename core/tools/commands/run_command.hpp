// `strata train` and `strata eval`.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "group/launch_place.hpp"
#include "run/resolve_run.hpp"
#include "tools/train/training_report.hpp"

namespace strata::cli {

struct RunArguments {
  std::string config;                 // a file
  std::vector<std::string> settings;  // a.b=c, later ones win
  int nproc = 0;                      // ranks to start here; 0: this process is one rank of what its launcher started
  bool oversubscribe = false;    // with nproc: more of them than this host has anything like the cores and memory for
  std::string format = "table";  // eval: table, markdown, csv or json
  std::string checkpoint;        // eval: whose weights; empty: model.init's
  std::optional<std::string> resume;  // see checkpoint/resume.hpp
  bool digests = false;               // of every step's gradient, in the metrics; see step/gradient_digest.hpp
  report::ReportSettings report;
  std::string turns;          // see run_in_turns.hpp; empty: none
  bool quiet_config = false;  // says nothing about what a ds_config's keys did; for ranks, whose launcher has said it
  std::vector<std::string> command_line;  // this process's arguments without its name: what the ranks are started with
};

// The settings of --model NAME, NAME:PRESET or NAME:FOLDER of initial weights.
std::vector<std::string> model_settings(const std::string& model);

// Logs what every key of a ds_config did, unless it is to be quiet.
void log_deepspeed(const RunArguments& arguments, const runtime::ResolvedRun& run);

// Whether this process is to start the ranks of --nproc: it is not one of them itself.
bool starts_ranks(const RunArguments& arguments, const launch::LaunchPlace& place);
// Starts nproc ranks of this program with the same command line, and with what `run` has settled for all of them.
// Returns the exit status.
int start_ranks(const RunArguments& arguments, const runtime::ResolvedRun& run);

// With nproc: checks the config, then starts that many ranks of this program and waits for them. Without: trains as one
// rank. Returns the exit status.
int train_command(const RunArguments& arguments, std::ostream& out);

// The mean loss and perplexity of a config's weights on its validation file, without training; started as train_command
// is. Returns the exit status.
int eval_command(const RunArguments& arguments, std::ostream& out);

}  // namespace strata::cli
