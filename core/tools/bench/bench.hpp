// `strata bench`: a plugin's speed relative to its floor, a lower bound of the time for the same work. Both are
// measured in the same rounds, so that a change in the machine's speed affects both. The data flow:
//   registry -> ChosenPlugin -> the kind's rows, each timed by InterleavedTimer -> bench_report
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "group/launch_place.hpp"
#include "plugins/registry.hpp"
#include "tools/chosen/chosen_plugin.hpp"

namespace strata::bench {

// Share: a fraction, 0 to 1, the same in every round.
enum class Unit { Seconds, Share };

// One measurement.
struct Row {
  std::string name;   // "all_reduce"
  std::string size;   // "1.00 MiB"
  std::string floor;  // what it is compared with: "a copy of the 1.00 MiB a rank must send"
  Unit unit = Unit::Seconds;
  double work = 0.0;                 // work done in one time, in work_unit; 0: print no rate
  std::string work_unit;             // "B" or "FLOP"
  std::vector<double> values;        // by round
  std::vector<double> floor_values;  // by round
};

using Sizes = std::vector<std::int64_t>;

struct Settings {
  cli::OptionTexts options;  // of the plugin
  Sizes sizes;               // of the work, see sizes_of in bench.cpp; empty: defaults of the kind
  int rounds = 12;           // at least compare::smallest_pairs
  double seconds = 0.02;     // approximate length of one timing
  std::string communicator;  // for a partitioner's ranks; empty: the first usable one of `automatic.communicator`
  group::LaunchPlace place;  // this process among the ranks of the bench
  std::function<void(const std::string&)> say = [](const std::string&) {};  // reports what is being measured
};

using Registry = std::shared_ptr<plugins::PluginRegistry>;

// True if plugins of this kind are measured between ranks.
bool needs_ranks(PluginKind kind);

// Throws UserError for unknown options or unsuitable sizes, and EnvironmentError with the plugin's reason if it cannot
// be used on this machine. [collective] over settings.place if the kind needs ranks; rank 0's rows hold the slowest
// rank's times.
std::vector<Row> run_bench(const Registry& registry, PluginKind kind, const std::string& name_or_path,
                           const Settings& settings);

// Throws the EnvironmentError of run_bench; called before ranks are started.
void check_usable(const Registry& registry, PluginKind kind, const std::string& name_or_path);

}  // namespace strata::bench
