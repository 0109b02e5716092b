#pragma once
#include <cstdint>
#include <string>

#include "tools/verify/findings.hpp"

namespace strata::verify {

// Seconds of testing similar runs (drawn_runs.hpp), and their seed: equal seeds give equal runs.
struct Search {
  double seconds = 0.0;
  std::uint64_t seed = 1;
};

// Scales the run down, trains it and the reference run for a few steps and compares them, then tests similar runs; on a
// difference, also trains the run without each of its settings. `keep`: folder for tokens and offloaded state; empty: a
// temporary one. `say`: report progress on standard error. Throws UserError, and EnvironmentError with the last lines
// of a failed run.
Findings verify(const Run& user_run, const Search& search, const std::string& keep, bool say);

}  // namespace strata::verify
