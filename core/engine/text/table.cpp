#include "text/table.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <ostream>

namespace strata::text {

namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char letter : text) cell += letter == '|' ? "\\|" : letter == '\n' ? "<br>" : std::string(1, letter);
  return cell;
}

// Columns that people see: the bytes of UTF-8 that continue a letter take no room.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char letter) { return (static_cast<unsigned char>(letter) & 0xC0) != 0x80; }));
}

void print_csv(const Table& table, std::ostream& out) {
  const auto line = [&](std::size_t count, auto&& cell) {
    for (std::size_t i = 0; i < count; ++i) out << (i > 0 ? "," : "") << csv_field(cell(i));
    out << "\n";
  };
  line(table.columns.size(), [&](std::size_t i) { return table.columns[i].name; });
  for (const auto& row : table.rows) line(row.size(), [&](std::size_t i) { return row[i]; });
}

void print_aligned(Table table, bool markdown, std::ostream& out) {
  std::vector<std::size_t> widths;
  for (const Column& column : table.columns) widths.push_back(std::max<std::size_t>(width_of(column.name), 3));
  for (auto& row : table.rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (markdown) row[i] = markdown_cell(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  const auto line = [&](auto&& cell) {
    std::string text = markdown ? "| " : "";
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string content = cell(i);
      const std::string padding(widths[i] - width_of(content), ' ');
      text +=
          (i > 0 ? (markdown ? " | " : "  ") : "") + (table.columns[i].number ? padding + content : content + padding);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << (markdown ? " |\n" : "\n");
  };
  line([&](std::size_t i) { return table.columns[i].name; });
  if (markdown)
    line([&](std::size_t i) { return std::string(widths[i] - 1, '-') + (table.columns[i].number ? ":" : "-"); });
  for (const auto& row : table.rows) line([&](std::size_t i) { return row[i]; });
}

}  // namespace

TableFormat parse_table_format(const std::string& name) {
  if (name == "table") return TableFormat::Text;
  if (name == "markdown") return TableFormat::Markdown;
  if (name == "csv") return TableFormat::Csv;
  if (name == "json") return TableFormat::Json;
  throw UserError("--format {}: table, markdown, csv or json is expected", name);
}

void print(const Table& table, TableFormat format, std::ostream& out) {
  for (const auto& row : table.rows)
    strata_check(row.size() == table.columns.size(), "a row of a table has one cell a column");
  if (format == TableFormat::Json) throw Bug("a table's JSON is written by its owner");
  if (format == TableFormat::Csv) return print_csv(table, out);
  print_aligned(table, format == TableFormat::Markdown, out);
}

}  // namespace strata::text
