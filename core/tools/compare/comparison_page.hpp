#pragma once
#include <iosfwd>

#include "tools/compare/comparison.hpp"

namespace strata::report {

// The comparison as one HTML file that needs nothing else: the table, the curves of the losses, and bars of step times
// (with the fastest and the slowest run of each) and of peak bytes.
void print_page(const Comparison& comparison, std::ostream& out);

}  // namespace strata::report
