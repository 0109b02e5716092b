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
  int nproc = 0;                      // ranks to start here; 0: this process is one rank of its launcher's job
  bool oversubscribe = false;         // with nproc: allow many more ranks than this host has cores or memory for
  std::string format = "table";       // eval: table, markdown, csv or json
  std::string checkpoint;             // eval: the weights; empty: model.init
  runtime::TrainRequest request;
  std::string turns;                      // see run_in_turns.hpp; empty: none
  bool quiet_config = false;              // do not log a ds_config's keys; for ranks, because their launcher has
  std::vector<std::string> command_line;  // this process's arguments without the program's name, for starting ranks
};

struct PreparedRun {
  std::shared_ptr<plugin_host::PluginRegistry> registry;
  config::RunConfig config;
  std::optional<config::Translation> translation;  // if the config is a ds_config
};

// Reads and resolves the config for a world; see resolve_run. Throws UserError.
PreparedRun prepare_run(const RunArguments& arguments, const config::World& world);

// The settings of --model NAME, NAME:PRESET or NAME:FOLDER.
std::vector<std::string> model_settings(const std::string& model);

// Logs the effect of every key of a ds_config, unless quiet_config is set.
void log_deepspeed(const RunArguments& arguments, const PreparedRun& run);

// The arguments of ranks started here: the command line and what this process has resolved for all of them.
std::vector<std::string> rank_arguments(const RunArguments& arguments, const PreparedRun& run);

// With nproc: checks the config, then starts that many ranks of this program and waits for them. Without: trains as one
// rank. Returns the exit status.
int train_command(const RunArguments& arguments, std::ostream& out);

// Computes the mean loss and perplexity of a config's weights on its validation file. Starts ranks as train_command
// does. Returns the exit status.
int eval_command(const RunArguments& arguments, std::ostream& out);

}  // namespace strata::cli
