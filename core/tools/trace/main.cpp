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
  line.app.add_option("trace", file, "File that `strata train --trace` wrote")->required();
  add_format(line.app, format, {"text", "json", "svg"});
  line.app.footer(
      "The prediction is the schedule's own order, in which every pass of a micro-batch takes the median of the traced "
      "passes of its\n"
      "kind and chunk. Where it differs from what was measured is told part by part. Stages are shown by their first "
      "rank.\n"
      "  strata train run.yaml --nproc 4 --trace trace.json\n"
      "  strata trace trace.json\n"
      "  strata trace trace.json --format svg > trace.svg\n"
      "ui.perfetto.dev opens the file itself: every instruction of every rank.");
  line.action = [] {
    const trace::TraceFile read = trace::read_trace(file);
    trace::write_report(file, read, trace::compare(read), format, std::cout);
    return 0;
  };
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Compare what the ranks did with what their schedule predicts", "strata trace");
  CommandLine line{app, {argv + 1, argv + argc}};
  describe(line);
  leave(carry_out(line));
}
