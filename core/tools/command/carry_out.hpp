#pragma once
#include "tools/command/command.hpp"

namespace strata::cli {

// What main() of `strata`, and of each program behind one of its commands, does: reads the command line, carries out
// the command that it gives, with a log on standard error, prints an error as one line, and returns the exit status.
// A program that has no option --log-level takes the one that `strata` puts in front of the words.
int carry_out(CommandLine& line);

}  // namespace strata::cli
