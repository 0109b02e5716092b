// Tables in formats for reports.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::text {

enum class TableFormat { Text, Markdown, Csv, Json };

// Parses "table", "markdown", "csv" or "json"; throws UserError otherwise.
TableFormat parse_table_format(const std::string& name);

struct Column {
  std::string name;
  bool number = false;  // aligned to the right
};

// A table; every row has one cell per column.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

// Prints a table as text, Markdown or CSV (RFC 4180). JSON is left to the table's owner: throws Bug for Json.
void print(const Table& table, TableFormat format, std::ostream& out);

}  // namespace strata::text
