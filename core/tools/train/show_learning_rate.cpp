#include "tools/train/show_learning_rate.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "config/schema.hpp"
#include "text/formatted.hpp"

namespace strata::cli {
namespace {

constexpr std::int64_t drawn_columns = 64;  // of the drawing
constexpr int drawn_rows = 12;
constexpr std::int64_t sample_parts = 20;  // that the sample cuts the run into

std::string exact(double value) {
  return config::to_text(OptionValue(value));
}

// One of `parts` + 1 steps that lie evenly over the run, its first and last among them.
std::int64_t even_step(const step::RunLearningRate& rate, std::int64_t part, std::int64_t parts) {
  return static_cast<std::int64_t>(static_cast<double>(rate.steps() - 1) * static_cast<double>(part) /
                                   static_cast<double>(parts));
}

std::set<std::int64_t> sample(const step::RunLearningRate& rate) {
  const std::vector<std::int64_t> borders = rate.phase_starts();
  std::set<std::int64_t> steps(borders.begin(), borders.end());
  for (std::int64_t part = 0; part <= sample_parts; ++part) steps.insert(even_step(rate, part, sample_parts));
  return steps;
}

void write_csv(const step::RunLearningRate& rate, std::ostream& output) {
  output << "step,learning_rate\n";
  for (std::int64_t step = 0; step < rate.steps(); ++step) output << step + 1 << "," << exact(rate.rate(step)) << "\n";
}

// Line by line: a run may have more steps than a tree of them has room in memory.
void write_json(const step::RunLearningRate& rate, std::ostream& output) {
  output << "[";
  for (std::int64_t step = 0; step < rate.steps(); ++step) {
    output << (step == 0 ? "\n" : ",\n") << R"(  {"step": )" << step + 1 << R"(, "learning_rate": )"
           << exact(rate.rate(step)) << "}";
  }
  output << "\n]\n";
}

void write_table(const step::RunLearningRate& rate, text::TableFormat format, std::ostream& output) {
  text::Table table{{{"step", true}, {"learning rate", true}}, {}};
  for (const std::int64_t step : sample(rate))
    table.rows.push_back({std::to_string(step + 1), text::formatted("%.6g", rate.rate(step))});
  text::print(table, format, output);
}

// The rate over the run, from 0 to its largest.
void draw(const step::RunLearningRate& rate, std::ostream& output) {
  const std::int64_t columns = std::min(drawn_columns, rate.steps());
  std::vector<double> rates;
  for (std::int64_t column = 0; column < columns; ++column)
    rates.push_back(rate.rate(even_step(rate, column, std::max<std::int64_t>(columns - 1, 1))));
  const double largest = *std::max_element(rates.begin(), rates.end());
  const std::string top = text::formatted("%.6g", largest), bottom = "0";
  for (int row = drawn_rows - 1; row >= 0; --row) {
    const std::string label = row == drawn_rows - 1 ? top : row == 0 ? bottom : "";
    std::string line = std::string(std::max(top.size(), bottom.size()) - label.size(), ' ') + label + " |";
    for (const double value : rates)
      line += largest > 0 && static_cast<int>(value / largest * (drawn_rows - 1) + 0.5) == row ? '*' : ' ';
    line.erase(line.find_last_not_of(' ') + 1);
    output << line << "\n";
  }
  const std::string first = "1", last = std::to_string(rate.steps());
  const auto width = static_cast<std::size_t>(columns);
  output << std::string(top.size() + 1, ' ') << "+" << std::string(width, '-') << "\n"
         << std::string(top.size() + 2, ' ') << first;
  if (width > first.size() + last.size()) output << std::string(width - first.size() - last.size(), ' ') << last;
  output << "\n\n";
}

}  // namespace

void write_learning_rates(const step::RunLearningRate& rate, text::TableFormat format, std::ostream& output) {
  if (format == text::TableFormat::Csv) return write_csv(rate, output);
  if (format == text::TableFormat::Json) return write_json(rate, output);
  if (format == text::TableFormat::Text) draw(rate, output);
  write_table(rate, format, output);
}

}  // namespace strata::cli
