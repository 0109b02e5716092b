#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/table.hpp"
#include "tools/bench/bench.hpp"

namespace strata::bench {

struct BenchReport {
  std::string plugin;  // "optimizer/adamw"
  int ranks = 1;
  int threads = 1;  // per rank
  int rounds = 0;
  std::vector<Row> rows;
};

// Prints one line per row: case, size, median, min..max, rate, floor, its median, and the ratio of the two with its 99
// % confidence interval.
text::Table bench_table(const BenchReport& report);  // Returns the rows as JSON, with the values of every round.

nlohmann::ordered_json to_json(const BenchReport& report);

}  // namespace strata::bench
