// Writes what a trace and the prediction of its schedule have in common, and where they differ.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "tools/trace/prediction.hpp"

namespace strata::trace {

// `format`: text, a table of medians over the steps; json, every step; svg, the step of median length, measured and
// below it predicted. `name` is the trace's in the text.
void write_report(const std::string& name, const schedule::TraceFile& trace, const std::vector<Comparison>& steps,
                  const std::string& format, std::ostream& out);

}  // namespace strata::trace
