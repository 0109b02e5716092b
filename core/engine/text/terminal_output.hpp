// Standard output and error of a program of Strata: everything that is written to them passes printable().
#pragma once
#include <iosfwd>

namespace strata::text {

// From now on std::cout, std::cerr and std::clog write printable text only. For the beginning of main(); it holds to
// the end of the process.
void print_only_what_is_printable();

// Goes back to the beginning of the terminal's line and clears it: the one command to terminals that Strata gives.
std::ostream& clear_line(std::ostream& out);

// The errno of the first write to std::cout that failed; 0 if none did.
int output_error();

}  // namespace strata::text
