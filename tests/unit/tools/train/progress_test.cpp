#include "tools/train/progress.hpp"

#include <sstream>

#include "catch.hpp"

using namespace strata::report;

namespace {

std::string shown(double step_s, std::int64_t steps, std::int64_t every) {
  std::ostringstream out;
  Progress progress(out, /*terminal=*/false, /*steps=*/1'000'000, every);
  for (std::int64_t step = 0; step < steps; ++step) {
    StepRecord record;
    record.step = step;
    record.step_s = step_s;
    progress.show(record);
  }
  std::string numbers;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find(' ') + 1;
    numbers += (numbers.empty() ? "" : " ") + line.substr(begin, line.find('/') - begin);
  }
  return numbers;
}

}  // namespace

TEST_CASE("a log has a line after ten seconds of steps, however rare lines are to be") {
  CHECK(shown(4.0, 10, 2000) == "1 4 7 10");
  CHECK(shown(25.0, 3, 2000) == "1 2 3");
  CHECK(shown(4.0, 10, 4) == "1 4 7 8");  // counted from the last line, whatever asked for it
  CHECK(shown(0.01, 9, 4) == "1 4 8");
}
