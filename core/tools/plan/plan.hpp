// `strata plan`: memory and traffic of ranks, from dry runs.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::cli {

struct PlanArguments {
  std::string config;                     // a file; may be empty for a table
  std::vector<std::string> settings;      // a.b=c, later ones win
  std::vector<std::string> ranks{"1"};    // number of ranks; a table: one or more
  std::string memory;                     // of one rank's device, e.g. 32GB; empty: not checked
  std::string format = "table";           // or markdown, csv, json
  bool table = false;                     // the members below need it
  std::vector<std::string> params;        // parameter counts of models to shape
  std::vector<std::string> models;        // PLUGIN, PLUGIN:PRESET or PLUGIN:FILE of a config.json
  std::vector<std::string> partitioners;  // empty: the config's
  std::vector<std::string>
      bookkeeping;  // names in configs/plan/table.yaml; empty: the config's precision, without one the first
};

// Prints memory and traffic of every rank in a step; with `memory` also whether that fits and the largest micro-batch
// that fits. Returns the exit status: 1 if a rank needs more than `memory`. Throws UserError.
int plan_run(const PlanArguments& arguments, std::ostream& out);

// Prints the model state of a rank for every model, number of ranks and partitioner. Returns 0. Throws UserError.
int plan_table(const PlanArguments& arguments, std::ostream& out);

}  // namespace strata::cli
