#pragma once
#include <cstdint>
#include <string>

#include "tools/verify/findings.hpp"

namespace strata::verify {

// How long to try runs near the config's (drawn_runs.hpp), and which: the same for the same seed.
struct Search {
  double seconds = 0.0;
  std::uint64_t seed = 1;
};

// Makes the run small, trains it and the plain one for a few steps and compares them, and then runs near it; where they
// differ, also the run without each of its settings. `keep`: the folder for tokens and offloaded state; empty: a
// temporary one. `say`: the progress, on standard error. Throws UserError, and EnvironmentError with the last lines of
// a run that fails.
Findings verify(const Run& user_run, const Search& search, const std::string& keep, bool say);

}  // namespace strata::verify
