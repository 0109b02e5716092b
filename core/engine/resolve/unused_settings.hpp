// Refusals of settings that nothing in this process honours.
#pragma once
#include <vector>

#include "config/tree.hpp"
#include "resolve/resolve_run.hpp"

namespace strata::resolve {

// Throws UserError for a memory_budget that a training does not use. [any rank]
void check_memory_budget(const ResolvedRun& run);

// Throws UserError for a key that commands honour and a C++ program does not: in the trees as written, the defaults
// first, and in a resolved config, which has a dialect's keys translated. [any rank]
void check_program_keys(const std::vector<config::Node>& trees);
void check_program_keys(const config::RunConfig& run);

}  // namespace strata::resolve
