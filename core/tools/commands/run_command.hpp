// `strata train` and `strata eval`.
#pragma once
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"
#include "run/training.hpp"
#include "tools/deepspeed/deepspeed.hpp"

namespace strata::cli {

struct RunArguments {
  std::string config;                 // a file
  std::vector<std::string> settings;  // a.b=c, later ones win
  int nproc = 0;                      // ranks to start here; 0: this process is one rank of what its launcher started
  bool oversubscribe = false;    // with nproc: more of them than this host has anything like the cores and memory for
  std::string format = "table";  // eval: table, markdown, csv or json
  std::string checkpoint;        // eval: whose weights; empty: model.init's
  runtime::TrainRequest request;
  std::string turns;          // see run_in_turns.hpp; empty: none
  bool quiet_config = false;  // says nothing about what a ds_config's keys did; for ranks, whose launcher has said it
  std::vector<std::string> command_line;  // this process's arguments without its name: what the ranks are started with
};

struct PreparedRun {
  std::shared_ptr<plugin_host::PluginRegistry> registry;
  config::RunConfig config;
  std::optional<config::Translation> translation;  // where the config is a ds_config
};

// Reads and resolves the config for a world; one that --nproc starts is of this host: see resolve_run. Throws
// UserError.
PreparedRun prepare_run(const RunArguments& arguments, const config::World& world);

// The settings of --model NAME, NAME:PRESET or NAME:FOLDER of initial weights.
std::vector<std::string> model_settings(const std::string& model);

// Logs what every key of a ds_config did, unless it is to be quiet.
void log_deepspeed(const RunArguments& arguments, const PreparedRun& run);

// What ranks started here are called with: the command line, and what this process has found out for all of them.
std::vector<std::string> rank_arguments(const RunArguments& arguments, const PreparedRun& run);

// With nproc: checks the config, then starts that many ranks of this program and waits for them. Without: trains as one
// rank. Returns the exit status.
int train_command(const RunArguments& arguments, std::ostream& out);

// The mean loss and perplexity of a config's weights on its validation file, without training; started as train_command
// is. Returns the exit status.
int eval_command(const RunArguments& arguments, std::ostream& out);

}  // namespace strata::cli
