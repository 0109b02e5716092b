#include "tools/commands/config_command.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/dialect.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "text/table.hpp"
#include "tools/commands/write_tree.hpp"
#include "tools/drawing/show_learning_rate.hpp"

namespace strata::cli {

namespace {

config::Format format_of(const std::string& format, const std::string& file) {
  const std::string extension = std::filesystem::path(file).extension().string();
  const std::string name = !format.empty() ? format : extension.empty() ? "yaml" : extension.substr(1);
  if (name == "yaml" || name == "yml") return config::Format::Yaml;
  if (name == "toml") return config::Format::Toml;
  if (name == "json") return config::Format::Json;
  throw UserError({file}, "the file name must end in .yaml, .yml, .toml or .json; or give --format");
}

void print_listing(const std::vector<config::Resolved>& listing, report::TableFormat format, std::ostream& output) {
  report::Table table{{{"key"}, {"value"}, {"origin"}}, {}};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const config::Resolved& row : listing) {
    const std::string value = config::to_text(row.value);
    rows.push_back({{"key", row.path}, {"value", value}, {"origin", row.origin}});
    table.rows.push_back({row.path, config::one_line(value, std::string::npos), row.origin});
  }
  if (format == report::TableFormat::Json)
    output << rows.dump(2) << "\n";
  else
    report::print(table, format, output);
}

}  // namespace

void config_show(const ConfigShow& arguments, const ResolveConfig& resolve, std::ostream& output) {
  const report::TableFormat format = report::parse_table_format(arguments.format);
  const config::RunConfig run = resolve(config::read_trees(arguments.file, arguments.settings), arguments.world);
  if (arguments.learning_rate) {
    const auto registry = plugin_host::open_registry(run.plugin_path);
    return config::write_learning_rates(runtime::RunLearningRate(run, *registry), format, output);
  }
  print_listing(run.listing, format, output);
}

void config_convert(const ConfigShow& arguments, const config::PluginSource& plugins, const std::string& format,
                    const std::string& file, std::ostream& output, std::ostream& log) {
  const config::Format chosen = format_of(format, file);
  std::vector<config::Node> trees = config::read_trees(arguments.file, arguments.settings);
  if (const config::Dialect* dialect = config::dialect_of(trees[1]))
    for (const config::DialectLine& line : dialect->translate(trees, plugins, {}).lines) log << line.one_line() << "\n";
  config::Node tree = std::move(trees[1]);
  config::merge(tree, trees[2]);
  const std::string text = config::write_tree(tree, chosen);
  if (file.empty()) {
    output << text;
    return;
  }
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw EnvironmentError(file + " cannot be written: " + std::strerror(errno));
}

}  // namespace strata::cli
