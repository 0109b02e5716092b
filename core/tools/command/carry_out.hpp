#pragma once
#include "tools/command/command.hpp"

namespace strata::cli {

// Implements main() of `strata` and of each program behind one of its commands: parses the command line, runs the
// command with a log on standard error, prints an error as one line, and returns the exit status. A program without an
// option --log-level uses the one that `strata` puts before the words.
int carry_out(CommandLine& line);

}  // namespace strata::cli
