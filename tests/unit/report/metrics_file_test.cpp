#include "report/metrics_file.hpp"

#include <strata/error.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

#include "error_of.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::report;

namespace {

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step - 1;
  record.outcome.loss = static_cast<double>(step);
  return record;
}

StepValidation validation_after(std::int64_t step) {
  StepValidation validation{step - 1, {}};
  validation.result.loss = 0.5;
  return validation;
}

// The lines of a file: "1" for a step, "1v" for a validation after it.
std::string lines_of(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    text += std::to_string(json["step"].get<int>()) + (json.contains("loss") ? " " : "v ");
  }
  return text;
}

}  // namespace

TEST_CASE("metrics hold each step and each validation once after a resume") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics";
  {
    MetricsFile sink(path);
    CHECK(sink.earlier_run() == "");
    sink.begin(0);
    for (std::int64_t step = 1; step <= 4; ++step) {
      sink.write(record_of(step));
      if (step % 2 == 0) sink.write(validation_after(step));
    }
  }
  CHECK(lines_of(path) == "1 2 2v 3 4 4v ");
  MetricsFile sink(path);
  CHECK_THAT(sink.earlier_run(), Contains("--metrics") && Contains("an earlier run"));
  CHECK(lines_of(path) == "1 2 2v 3 4 4v ");
  sink.begin(2);
  sink.write(record_of(3));
  CHECK(lines_of(path) == "1 2 2v 3 ");
}

TEST_CASE("a file with other content than metrics is refused and kept") {
  const TemporaryFolder folder;
  for (const char* const content :
       {"text\n", R"({"step": "one", "loss": 1})", R"({"step": 1})", R"({"step": 0, "loss": 1})"}) {
    CAPTURE(content);
    write_file(folder / "file", content);
    CHECK_THAT(error_of<UserError>([&] { MetricsFile(folder / "file"); }), Contains("give another path"));
    CHECK(std::ifstream(folder / "file").peek() == content[0]);
  }
}
