// `strata plan`: what ranks will hold and send, from dry runs.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::cli {

struct PlanArguments {
  std::string config;                     // a file; plan_table_command also takes none
  std::vector<std::string> settings;      // a.b=c, later ones win
  std::vector<std::string> ranks{"1"};    // of the run; plan_table_command: several runs
  std::string memory;                     // of one rank's device, as in 32GB; empty: not asked
  std::string format = "table";           // or markdown, csv, json
  bool table = false;                     // what the rest is for
  std::vector<std::string> params;        // sizes of models to be shaped
  std::vector<std::string> models;        // PLUGIN, PLUGIN:PRESET or PLUGIN:FILE of a config.json
  std::vector<std::string> partitioners;  // empty: the config's
  std::vector<std::string>
      bookkeeping;  // names in configs/plan/table.yaml; empty: the config's precision, without one the first
};

// Prints what every rank holds and sends in a step, and with `memory` whether that fits and which micro-batch would.
// Returns the exit status: 1 when `memory` is given and a rank needs more. Throws UserError.
int plan_command(const PlanArguments& arguments, std::ostream& out);

// Prints the model state of a rank for every model, number of ranks and partitioner. Returns 0. Throws UserError.
int plan_table_command(const PlanArguments& arguments, std::ostream& out);

}  // namespace strata::cli
