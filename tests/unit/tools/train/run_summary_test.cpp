#include <sstream>

#include "catch.hpp"
#include "tools/train/run_summary.hpp"

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
