// strata_trace: what `strata trace` runs. Reads the command line.
#include <iostream>
#include <string>

#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/trace/report.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void describe(CommandLine& line) {
  static std::string file, format = "text";
  line.app.add_option("trace", file, "Trace file from `strata train --trace`")->required();
  add_format(line.app, format, {"text", "json", "svg"});
  line.app.footer(
      "The prediction follows the order of the schedule; every pass of a micro-batch takes the median time of the "
      "traced passes of its kind and chunk. Differences from the measurement are reported part by part. A stage is "
      "represented by its first rank.\n"
      "  strata train run.yaml --nproc 4 --trace trace.json\n"
      "  strata trace trace.json\n"
      "  strata trace trace.json --format svg > trace.svg\n"
      "ui.perfetto.dev opens the trace file directly and shows every instruction of every rank.");
  line.action = [] {
    const schedule::TraceFile read = schedule::read_trace(file);
    trace::write_report(file, read, trace::compare(read), format, std::cout);
    return 0;
  };
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Compare the measured timeline of the pipeline stages with the predicted one", "strata trace");
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line);
  leave(carry_out(line));
}
