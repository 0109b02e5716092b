// `strata launch`.
#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// Starts `ranks` processes of a program that trains with <strata/engine.hpp> and waits for them. `command` is the
// program, a path or a name on PATH, and its arguments. Returns the exit status. Throws UserError when there is no such
// program, or when this process is itself a rank that a launcher started.
int launch_command(int ranks, bool oversubscribe, const std::vector<std::string>& command);

}  // namespace strata::cli
