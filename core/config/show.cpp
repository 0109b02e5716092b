#include "config/show.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "text/nearest.hpp"

namespace strata::config {
namespace {

using Row = std::array<std::string, 3>;

// Columns as people see them: characters, not bytes.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char letter) { return (static_cast<unsigned char>(letter) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string field = "\"";
  for (const char letter : text) field += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return field + "\"";
}

// In a table a value stays on its line, and in Markdown in its cell.
std::string cell(const std::string& text, bool markdown) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\n') {
      result += "\\n";
    } else {
      result += markdown && letter == '|' ? std::string("\\|") : std::string(1, letter);
    }
  }
  return result;
}

std::string aligned(std::vector<Row> rows, bool markdown) {
  std::array<std::size_t, 3> widths{};
  for (Row& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      row[column] = cell(row[column], markdown);
      widths[column] = std::max(widths[column], width(row[column]));
    }
  }
  std::string text;
  const auto add = [&](const Row& row) {
    std::string line = markdown ? "| " : "";
    line += padded(row[0], widths[0]) + (markdown ? " | " : "  ") + padded(row[1], widths[1]) +
            (markdown ? " | " : "  ") + padded(row[2], widths[2]) + (markdown ? " |" : "");
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(rows.front());
  add({std::string(widths[0], '-'), std::string(widths[1], '-'), std::string(widths[2], '-')});
  for (std::size_t at = 1; at < rows.size(); ++at) add(rows[at]);
  return text;
}

std::string json(const std::vector<Resolved>& listing) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Resolved& row : listing) rows.push_back({{"key", row.path}, {"value", row.value}, {"origin", row.origin}});
  return rows.dump(2) + "\n";
}

}  // namespace

ListingFormat listing_format(const std::string& name) {
  if (name == "table") return ListingFormat::Table;
  if (name == "markdown") return ListingFormat::Markdown;
  if (name == "csv") return ListingFormat::Csv;
  if (name == "json") return ListingFormat::Json;
  throw UserError({"--format"},
                  "unknown format " + shown(name) + "; " + suggestion(name, {"table", "markdown", "csv", "json"}));
}

std::string format_listing(const std::vector<Resolved>& listing, ListingFormat format) {
  if (format == ListingFormat::Json) return json(listing);
  std::vector<Row> rows{{"key", "value", "origin"}};
  for (const Resolved& row : listing) rows.push_back({row.path, row.value, row.origin});
  if (format != ListingFormat::Csv) return aligned(std::move(rows), format == ListingFormat::Markdown);
  std::string text;
  for (const Row& row : rows) text += csv_field(row[0]) + "," + csv_field(row[1]) + "," + csv_field(row[2]) + "\n";
  return text;
}

}  // namespace strata::config
