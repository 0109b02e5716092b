// `strata bench`: a plugin's own speed beside its floor, the least that the same work could take. Both are measured in
// the same rounds, in turns, so that a machine that grows slower meets both. The data flow:
//   registry -> PluginUnderTest -> the kind's rows, each timed by InterleavedTimer -> bench_report
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "group/launch_place.hpp"
#include "plugin_host/registry.hpp"

namespace strata::bench {

// Share: a part of a whole, 0 to 1, the same in every round.
enum class Unit { Seconds, Share };

// One thing that was measured.
struct Row {
  std::string name;   // "all_reduce"
  std::string size;   // "1.00 MiB"
  std::string floor;  // what it is held against: "a copy of the 1.00 MiB a rank must send"
  Unit unit = Unit::Seconds;
  double work = 0.0;                 // what one time stands for, in work_unit; 0: nothing is said of a rate
  std::string work_unit;             // "B" or "FLOP"
  std::vector<double> values;        // by round
  std::vector<double> floor_values;  // by round
};

struct Settings {
  std::vector<std::pair<std::string, std::string>> options;  // the plugin's, as in a config
  std::vector<std::int64_t> sizes;                           // empty: the kind's own. What a size is: see size_meaning
  int rounds = 12;                                           // at least report::smallest_pairs
  double seconds = 0.02;                                     // one timing repeats its work for about so long
  std::string communicator;   // that connects a partitioner's ranks; empty: the first of `automatic.communicator`
  launch::LaunchPlace place;  // this process among the ranks of the bench
  std::function<void(const std::string&)> say = [](const std::string&) {};  // what is being measured now
};

// Whether a plugin of this kind is measured between ranks.
bool needs_ranks(PluginKind kind);
// What --size is for this kind: "bytes of a parameter's values".
std::string size_meaning(PluginKind kind);

// Throws UserError where options are unknown or sizes do not suit, EnvironmentError with the plugin's own reason where
// it cannot be used on this machine. [collective] over settings.place where the kind needs ranks; rank 0's rows hold
// the slowest rank's times.
std::vector<Row> run_bench(plugin_host::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path,
                           const Settings& settings);

// The last of these two: whoever starts ranks asks first.
void check_usable(plugin_host::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path);

}  // namespace strata::bench
