#pragma once
#include <string>

#include "verify/findings.hpp"

namespace strata::verify {

// Makes the run small, trains it and the plain one for two steps and compares them; where they differ, also the run
// without each of its settings. `keep`: the folder for tokens and offloaded state; empty: a temporary one. `say`: the
// progress, on standard error. Throws UserError, and EnvironmentError with the last lines of a run that fails.
Findings verify(const Run& user_run, const std::string& keep, bool say);

}  // namespace strata::verify
