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
  int threads = 1;  // of each rank
  int rounds = 0;
  std::vector<Row> rows;
};

// One line a row: case, size, median, least..most, rate, floor, its median, and the ratio of the two with the interval
// that holds it with 99 % confidence.
report::Table bench_table(const BenchReport& report);
// The same as numbers, with every round's.
nlohmann::ordered_json to_json(const BenchReport& report);

}  // namespace strata::bench
