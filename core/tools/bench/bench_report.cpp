#include "tools/bench/bench_report.hpp"

#include <algorithm>
#include <cstdio>

#include "report/run_summary.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::bench {

namespace {

using report::median;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 100.0 ? "%.0f" : value >= 10.0 ? "%.1f" : "%.2f", value);
  return text;
}

// "12.3 us": three digits, the unit that suits the value.
std::string shown(Unit unit, double value) {
  if (unit == Unit::Share) return number(100.0 * value) + " %";
  if (value >= 1.0) return number(value) + " s";
  if (value >= 1e-3) return number(1e3 * value) + " ms";
  if (value >= 1e-6) return number(1e6 * value) + " us";
  return number(1e9 * value) + " ns";
}

std::string shown_rate(const Row& row) {
  if (row.work <= 0.0) return "";
  const double rate = row.work / report::median(row.values) / 1e9;
  return number(rate) + " G" + row.work_unit + "/s";
}

// A value that is the same in every round has no interval.
compare::PairedRatio ratio_of(const Row& row) {
  if (row.unit == Unit::Seconds) return compare::paired_ratio(row.values, row.floor_values);
  const double ratio = row.values.front() / row.floor_values.front();
  return {ratio, ratio, ratio};
}

}  // namespace

text::Table bench_table(const BenchReport& report) {
  text::Table table;
  table.columns = {{"case"},       {"size"},  {"median", true},         {"least..most", true},
                   {"rate", true}, {"floor"}, {"floor's median", true}, {"ratio", true}};
  for (const Row& row : report.rows) {
    const auto [least, most] = std::minmax_element(row.values.begin(), row.values.end());
    const compare::PairedRatio ratio = ratio_of(row);
    std::string range = shown(row.unit, *least);
    if (*most > *least) range += ".." + shown(row.unit, *most);
    std::string times = number(ratio.ratio);
    if (ratio.high > ratio.low) times += " [" + number(ratio.low) + ", " + number(ratio.high) + "]";
    table.rows.push_back({row.name, row.size, shown(row.unit, report::median(row.values)), range, shown_rate(row),
                          row.floor, shown(row.unit, report::median(row.floor_values)), times});
  }
  return table;
}

nlohmann::ordered_json to_json(const BenchReport& report) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : report.rows) {
    const compare::PairedRatio ratio = ratio_of(row);
    const auto [least, most] = std::minmax_element(row.values.begin(), row.values.end());
    rows.push_back({{"case", row.name},
                    {"size", row.size},
                    {"unit", row.unit == Unit::Seconds ? "s" : "share"},
                    {"median", report::median(row.values)},
                    {"least", *least},
                    {"most", *most},
                    {"work", row.work},
                    {"work_unit", row.work_unit},
                    {"floor", row.floor},
                    {"floor_median", report::median(row.floor_values)},
                    {"ratio", ratio.ratio},
                    {"ratio_low", ratio.low},
                    {"ratio_high", ratio.high},
                    {"values", row.values},
                    {"floor_values", row.floor_values}});
  }
  return {{"plugin", report.plugin},
          {"ranks", report.ranks},
          {"threads", report.threads},
          {"rounds", report.rounds},
          {"rows", rows}};
}

}  // namespace strata::bench
