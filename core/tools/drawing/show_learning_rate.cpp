#include "tools/drawing/show_learning_rate.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "config/schema.hpp"

namespace strata::config {
namespace {

constexpr std::int64_t drawn_columns = 64;  // of the drawing
constexpr int drawn_rows = 12;
constexpr std::int64_t sample_parts = 20;  // that the sample cuts the run into

std::string exact(double value) {
  return to_text(OptionValue(value));
}

std::string rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// One of `parts` + 1 steps that lie evenly over the run, its first and last among them.
std::int64_t even_step(const runtime::RunLearningRate& rate, std::int64_t part, std::int64_t parts) {
  return static_cast<std::int64_t>(static_cast<double>(rate.steps() - 1) * static_cast<double>(part) /
                                   static_cast<double>(parts));
}

std::set<std::int64_t> sample(const runtime::RunLearningRate& rate) {
  const std::vector<std::int64_t> borders = rate.phase_starts();
  std::set<std::int64_t> steps(borders.begin(), borders.end());
  for (std::int64_t part = 0; part <= sample_parts; ++part) steps.insert(even_step(rate, part, sample_parts));
  return steps;
}

void write_csv(const runtime::RunLearningRate& rate, std::ostream& output) {
  output << "step,learning_rate\n";
  for (std::int64_t step = 0; step < rate.steps(); ++step) output << step << "," << exact(rate.rate(step)) << "\n";
}

// Line by line: a run may have more steps than a tree of them has room in memory.
void write_json(const runtime::RunLearningRate& rate, std::ostream& output) {
  output << "[";
  for (std::int64_t step = 0; step < rate.steps(); ++step) {
    output << (step == 0 ? "\n" : ",\n") << R"(  {"step": )" << step << R"(, "learning_rate": )"
           << exact(rate.rate(step)) << "}";
  }
  output << "\n]\n";
}

void write_table(const runtime::RunLearningRate& rate, bool markdown, std::ostream& output) {
  std::vector<std::vector<std::string>> rows{{"step", "learning rate"}};
  for (const std::int64_t step : sample(rate)) rows.push_back({std::to_string(step), rounded(rate.rate(step))});
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  for (std::size_t number = 0; number < rows.size(); ++number) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      output << (markdown      ? (column == 0 ? "| " : " | ")
                 : column == 0 ? ""
                               : "  ")
             << std::string(widths[column] - rows[number][column].size(), ' ') << rows[number][column];
    }
    output << (markdown ? " |\n" : "\n");
    if (number > 0) continue;
    for (std::size_t column = 0; column < widths.size(); ++column)
      output << (markdown      ? (column == 0 ? "| " : " | ")
                 : column == 0 ? ""
                               : "  ")
             << std::string(widths[column] - (markdown ? 1 : 0), '-') << (markdown ? ":" : "");
    output << (markdown ? " |\n" : "\n");
  }
}

// The rate over the run, from 0 to its largest.
void draw(const runtime::RunLearningRate& rate, std::ostream& output) {
  const std::int64_t columns = std::min(drawn_columns, rate.steps());
  std::vector<double> rates;
  for (std::int64_t column = 0; column < columns; ++column)
    rates.push_back(rate.rate(even_step(rate, column, std::max<std::int64_t>(columns - 1, 1))));
  const double largest = *std::max_element(rates.begin(), rates.end());
  const std::string top = rounded(largest), bottom = "0";
  for (int row = drawn_rows - 1; row >= 0; --row) {
    const std::string label = row == drawn_rows - 1 ? top : row == 0 ? bottom : "";
    std::string line = std::string(std::max(top.size(), bottom.size()) - label.size(), ' ') + label + " |";
    for (const double value : rates)
      line += largest > 0 && static_cast<int>(value / largest * (drawn_rows - 1) + 0.5) == row ? '*' : ' ';
    line.erase(line.find_last_not_of(' ') + 1);
    output << line << "\n";
  }
  const std::string first = "0", last = std::to_string(rate.steps() - 1);
  const auto width = static_cast<std::size_t>(columns);
  output << std::string(top.size() + 1, ' ') << "+" << std::string(width, '-') << "\n"
         << std::string(top.size() + 2, ' ') << first;
  if (width > first.size() + last.size()) output << std::string(width - first.size() - last.size(), ' ') << last;
  output << "\n\n";
}

}  // namespace

void write_learning_rates(const runtime::RunLearningRate& rate, report::TableFormat format, std::ostream& output) {
  if (format == report::TableFormat::Csv) return write_csv(rate, output);
  if (format == report::TableFormat::Json) return write_json(rate, output);
  if (format == report::TableFormat::Text) draw(rate, output);
  write_table(rate, format == report::TableFormat::Markdown, output);
}

}  // namespace strata::config
