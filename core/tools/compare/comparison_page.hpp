#pragma once
#include <iosfwd>

#include "tools/compare/comparison.hpp"

namespace strata::compare {

// Writes the comparison as a self-contained HTML file: the table, loss curves, and bars of step times (with the fastest
// and slowest run of each) and of peak memory.
void print_page(const Comparison& comparison, std::ostream& out);

}  // namespace strata::compare
