// A table in the formats that people paste into reports.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::report {

enum class TableFormat { Text, Markdown, Csv, Json };

// "table", "markdown", "csv" or "json"; throws UserError otherwise.
TableFormat parse_table_format(const std::string& name);

struct Column {
  std::string name;
  bool number = false;  // aligned to the right
};

// Every row has one cell a column.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

// Text, Markdown or CSV (RFC 4180). What a table means in JSON its owner knows: throws Bug for Json.
void print(const Table& table, TableFormat format, std::ostream& out);

}  // namespace strata::report
