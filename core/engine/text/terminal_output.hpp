// Standard output and error of Strata's programs: all text passes printable().
#pragma once
#include <iosfwd>

namespace strata::text {

// Makes std::cout, std::cerr and std::clog write printable text only, without the lines that gloo logs on its own,
// unless TORCH_CPP_LOG_LEVEL is set. For the beginning of main(); lasts to the end of the process.
void print_only_what_is_printable();

// Returns to the beginning of the terminal's line and clears it: the only control sequence that Strata writes.
std::ostream& clear_line(std::ostream& out);

// Returns the errno of the first write to std::cout that failed; 0 if none did.
int output_error();

}  // namespace strata::text
