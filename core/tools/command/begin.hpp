#pragma once

namespace strata::cli {

// For the beginning of main(), before anything is opened or printed:
// - of standard input, output and error, those that are closed become /dev/null: a file of the run would get their
//   number, and what is printed would be written into it;
// - what is printed is printable (text/terminal_output.hpp);
// - libraries log nothing (plugins/machine_error.hpp);
// - a file that reaches the limit of `ulimit -f` is an error of its write, and no signal.
void begin();

}  // namespace strata::cli
