// `strata config conflicts`: the table of features that cannot be combined.
#include <nlohmann/json.hpp>
#include <ostream>

#include "config/conflicts.hpp"
#include "plan/dry_run.hpp"
#include "resolve/resolve_run.hpp"
#include "tools/config/config.hpp"

namespace strata::cli {
namespace {

// A row, and its features found in a config; empty: not found, or no config.
struct Row {
  const config::Conflict& conflict;
  std::string first_found = {};
  std::string second_found = {};
};

std::string found_or_name(const std::string& found, std::string_view name) {
  return found.empty() ? std::string(name) : found;
}

void print_rows(const std::vector<Row>& rows, text::TableFormat format, std::ostream& output) {
  text::Table table{{{"feature"}, {"cannot be combined with"}, {"reason"}}, {}};
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const auto& [conflict, first_found, second_found] : rows) {
    const auto& [first, second, reason, in_training_only] = conflict;
    table.rows.push_back(
        {found_or_name(first_found, first.name), found_or_name(second_found, second.name), std::string(reason)});
    entries.push_back({{"first", first.name},
                       {"second", second.name},
                       {"reason", reason},
                       {"first_remedy", first.remedy},
                       {"second_remedy", second.remedy},
                       {"in_training_only", in_training_only},
                       {"first_found", first_found},
                       {"second_found", second_found}});
  }
  if (format == text::TableFormat::Json)
    output << entries.dump(2) << "\n";
  else
    text::print(table, format, output);
}

}  // namespace

void config_conflicts(const ConfigConflicts& arguments, std::ostream& output) {
  const text::TableFormat format = text::parse_table_format(arguments.format);
  if (arguments.file.empty() && !arguments.settings.empty())
    throw UserError("config conflicts: --set, --model and --data change a config; name one");
  if (arguments.file.empty()) return print_conflicts(format, output);
  const resolve::ResolvedRun run = resolve::read_run(arguments.file, arguments.settings, arguments.world);
  const config::Answers answers = plan::answers_of(run.config, *run.registry);
  const config::Facts facts{run.config, &answers};
  std::vector<Row> rows;
  for (const config::Conflict& conflict : config::conflicts()) {
    Row row{conflict, conflict.first.found(facts), conflict.second.found(facts)};
    if (!row.first_found.empty() || !row.second_found.empty()) rows.push_back(std::move(row));
  }
  print_rows(rows, format, output);
}

void print_conflicts(text::TableFormat format, std::ostream& output) {
  std::vector<Row> rows;
  for (const config::Conflict& conflict : config::conflicts()) rows.push_back({conflict});
  print_rows(rows, format, output);
}

}  // namespace strata::cli
