// Settings that nothing in this process honours.
#pragma once
#include <vector>

#include "config/tree.hpp"
#include "resolve/resolve_run.hpp"

namespace strata::runtime {

// Throws UserError for a memory_budget that a training does not use: nothing is chosen by it. [any rank]
void check_memory_budget(const ResolvedRun& run);

// Both throw UserError for a key that commands honour and a C++ program does not: of the trees as they are written, the
// defaults first, and of a resolved config, where a dialect's keys became ours. [any rank]
void check_program_keys(const std::vector<config::Node>& trees);
void check_program_keys(const config::RunConfig& run);

}  // namespace strata::runtime
