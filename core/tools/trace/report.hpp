// Writes the comparison of a trace with the prediction of its schedule.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "tools/trace/prediction.hpp"

namespace strata::trace {

// `format`: text, a table of medians over the steps; json, every step; svg, the step of median duration, measured above
// predicted. `name`: name of the trace in the text.
void write_report(const std::string& name, const schedule::TraceFile& trace, const std::vector<Comparison>& steps,
                  const std::string& format, std::ostream& out);

}  // namespace strata::trace
