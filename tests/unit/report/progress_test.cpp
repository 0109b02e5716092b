#include "report/progress.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace strata::report;

namespace {

std::string shown(double step_s, std::int64_t steps, std::int64_t every) {
  std::ostringstream out;
  Progress progress(&out, /*terminal=*/false, /*steps=*/1'000'000, every);
  for (std::int64_t step = 0; step < steps; ++step) {
    StepRecord record;
    record.step = step;
    record.step_s = step_s;
    progress.write(record);
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

namespace {

// What a run of a thousand steps writes of some of them, each with these tokens per second.
std::string written(bool terminal, std::int64_t every, int columns, const std::vector<double>& speeds,
                    double step_s = 1.0, bool validates = false) {
  std::ostringstream out;
  Progress progress(&out, terminal, /*steps=*/1000, every, [&] { return columns; });
  for (std::size_t step = 0; step < speeds.size(); ++step) {
    StepRecord record;
    record.step = static_cast<std::int64_t>(step);
    record.step_s = step_s;
    record.tokens_per_s = speeds[step];
    record.outcome.loss = 12.3456;
    record.learning_rate = 1.23e-4;
    if (validates) record.validation.emplace().samples = 1;
    progress.write(record);
  }
  progress.validating(1, 123456);
  progress.end_line();
  return out.str();
}

// What a terminal shows last, and whether any line was longer than it is wide.
std::size_t longest(const std::string& text) {
  std::size_t most = 0;
  std::string line;
  for (const char letter : text + "\n") {
    if (letter != '\r' && letter != '\n') {
      line += letter;
      continue;
    }
    most = std::max(most, line.starts_with("\033[K") ? line.size() - 3 : line.size());
    line.clear();
  }
  return most;
}

}  // namespace

TEST_CASE("on a terminal no line reaches its last column, at any width") {
  for (int columns = 2; columns <= 200; ++columns) {
    CAPTURE(columns);
    for (const bool validates : {false, true}) {
      const std::string text = written(true, 1, columns, std::vector<double>(20, 1234567.0), 1.0, validates);
      CHECK(longest(text) < static_cast<std::size_t>(columns));
    }
  }
  CHECK_THAT(written(true, 1, 80, {1000.0}), Catch::Contains("1000 tokens/s"));
  CHECK_THAT(written(true, 1, 60, {1000.0}), Catch::Contains("loss 12.3456") && Catch::Contains("tokens/s"));
  CHECK_THAT(written(true, 1, 200, {1000.0}), Catch::Contains("[....................]"));
}

TEST_CASE("tokens per second are the mean over all steps since the last line") {
  const std::string log = written(false, 4, 80, {100.0, 200.0, 300.0, 400.0, 0.0, 0.0, 0.0, 800.0});
  CHECK_THAT(log, Catch::Contains("step 4/1000") && Catch::Contains(" 300 tokens/s") &&
                      Catch::Contains("step 8/1000") && Catch::Contains(" 200 tokens/s"));
  // On a terminal, of the last ten seconds.
  std::vector<double> speeds(20, 100.0);
  std::fill(speeds.begin() + 10, speeds.end(), 300.0);
  CHECK_THAT(written(true, 1, 80, speeds), Catch::Contains(" 200 tokens/s") && Catch::Contains(" 300 tokens/s"));
}

TEST_CASE("a log has a line after ten seconds of steps, however rare lines are to be") {
  CHECK(shown(4.0, 10, 2000) == "1 4 7 10");
  CHECK(shown(25.0, 3, 2000) == "1 2 3");
  CHECK(shown(4.0, 10, 4) == "1 4 7 8");  // counted from the last line, whatever asked for it
  CHECK(shown(0.01, 9, 4) == "1 4 8");
}
