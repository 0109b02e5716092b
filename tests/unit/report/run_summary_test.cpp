#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "report/csv_folder.hpp"
#include "report/run_summary.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::report;
using Catch::Matchers::Contains;

namespace {

// Rank i sends 1 KiB more than rank i - 1, but for the one that sends most.
RunSummary summary_of(int ranks, int busiest) {
  RunSummary summary;
  for (int rank = 0; rank < ranks; ++rank) {
    RankUsage usage;
    usage.sent = (rank + 1) * 1024;
    if (rank == busiest) usage.sent = 1 << 30;
    summary.ranks.push_back(usage);
  }
  return summary;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("the summary has a column a rank for a few, and the ends of their range for many") {
  const std::string few = summary_table(summary_of(8, 5));
  CHECK_THAT(few, Contains("rank 7") && Contains("8.00 KiB") && !Contains("least"));
  for (const int ranks : {9, 1024}) {
    const std::string many = summary_table(summary_of(ranks, 5));
    CHECK_THAT(many, Contains("least           most        most on\n"));
    CHECK_THAT(many, Contains("  sent               1.00 KiB       1.00 GiB         rank 5\n"));
    CHECK(widest_line(many) < 80);
  }
}

TEST_CASE("an auxiliary loss stands in records, files and summary, and nowhere where no layer has one") {
  const TemporaryFolder folder;
  StepRecord record;
  record.outcome.loss = 2.0;
  record.validation.emplace();
  RunSummary summary;
  CHECK_FALSE(to_json(record).contains("auxiliary_loss"));
  CHECK_FALSE(to_json(record)["validation"].contains("auxiliary_loss"));
  CHECK_FALSE(to_json(summary).contains("auxiliary_losses"));
  CsvFolder(folder / "plain", 1).write(record);
  CHECK_FALSE(std::filesystem::exists(folder / "plain/Train_Samples_auxiliary_loss.csv"));
  record.outcome.auxiliary_loss = 0.25;
  record.validation->auxiliary_loss = 0.5;
  summary.auxiliary_losses = {0.25};
  CHECK(to_json(record)["auxiliary_loss"] == 0.25);
  CHECK(to_json(record)["loss"] == 2.0);
  CHECK(to_json(record)["validation"]["auxiliary_loss"] == 0.5);
  CHECK(to_json(summary)["auxiliary_losses"] == std::vector<double>{0.25});
  CsvFolder(folder / "both", 1).write(record);
  const auto text = [&](const std::string& file) {
    std::ostringstream out;
    out << std::ifstream(folder / file).rdbuf();
    return out.str();
  };
  CHECK(text("both/Train_Samples_auxiliary_loss.csv") == "step,auxiliary_loss\n1,0.25\n");
  CHECK(text("both/Validation_Samples_auxiliary_loss.csv") == "step,auxiliary_loss\n1,0.5\n");
}

TEST_CASE("statistics of layers stand in records and files under their names") {
  const TemporaryFolder folder;
  StepRecord record;
  record.validation.emplace();
  CHECK_FALSE(to_json(record).contains("statistics"));
  CHECK_FALSE(to_json(record)["validation"].contains("statistics"));
  record.outcome.statistics = {{"largest_logit", 7.5}, {"lr", NAN}};
  record.validation->statistics = {{"largest_logit", 6.5}};
  CHECK(to_json(record)["statistics"] == nlohmann::json{{"largest_logit", 7.5}, {"lr", nullptr}});
  CHECK(to_json(record)["validation"]["statistics"] == nlohmann::json{{"largest_logit", 6.5}});
  CsvFolder(folder / "csv", 1).write(record);
  const auto text = [&](const std::string& file) {
    std::ostringstream out;
    out << std::ifstream(folder / ("csv/" + file)).rdbuf();
    return out.str();
  };
  CHECK(text("Train_Samples_statistics_largest_logit.csv") == "step,statistics/largest_logit\n1,7.5\n");
  CHECK(text("Validation_Samples_statistics_largest_logit.csv") == "step,statistics/largest_logit\n1,6.5\n");
  CHECK(text("Train_Samples_lr.csv") == "step,lr\n1,0\n");  // a statistic of this name has its own file
}
