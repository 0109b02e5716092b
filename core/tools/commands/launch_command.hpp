// `strata launch`.
#pragma once
#include <string>
#include <vector>

namespace strata::cli {

// Starts `ranks` processes of a program that trains with <strata/engine.hpp> and waits for them. `command` is the
// program, as a path or a name on PATH, and its arguments. Returns the exit status. Throws UserError if the program
// does not exist or if this process is itself a rank of a launcher.
int launch_command(int ranks, bool oversubscribe, const std::vector<std::string>& command);

}  // namespace strata::cli
