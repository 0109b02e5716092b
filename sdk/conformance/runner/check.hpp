// Runs all cases of one plugin, several at a time.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"
#include "conformance/runner/run_case.hpp"

namespace strata::conformance {

struct CheckSettings {
  std::uint64_t seed = 1;
  std::vector<std::string> only;  // names of cases, or "partitioner" for all of a kind; empty: all
  int jobs = 1;
  SearchSettings search;
  std::optional<std::chrono::seconds> deadline;  // deadline of every case, in place of its own
  bool skip_what_cannot_load = false;            // true: a library that this machine lacks is not a failure
};

struct CaseResult {
  std::string name;
  std::string sentence;
  Outcome outcome;
};

struct PluginResult {
  std::string plugin;  // "partitioner/mine", or "" if the manifest cannot be read
  std::string file;
  std::vector<CaseResult> cases;
};

// True if `only` selects the case of that name.
bool chosen(const std::vector<std::string>& only, std::string_view name);

// Runs the selected cases of the plugin in `file` (absolute) and calls `ended` after each, in the order of the cases.
// The first cases decide whether the others can run: see gate_of in check.cpp.
PluginResult check_plugin(const std::string& file, const CheckSettings& settings,
                          const std::function<void(const CaseResult&)>& ended);

}  // namespace strata::conformance
