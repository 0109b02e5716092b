#include "tools/commands/config_command.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "config/dialect.hpp"
#include "config/show.hpp"
#include "config/write_tree.hpp"
#include "plugin_host/engine_plugins.hpp"
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

}  // namespace

void config_show(const ConfigShow& arguments, const ResolveConfig& resolve, std::ostream& output) {
  const config::ListingFormat format = config::listing_format(arguments.format);
  const config::RunConfig run = resolve(config::read_layers(arguments.file, arguments.settings), arguments.world);
  if (arguments.learning_rate) {
    const auto registry = plugin_host::open_registry(run.plugin_path);
    return config::write_learning_rates(runtime::RunLearningRate(run, *registry), format, output);
  }
  output << config::format_listing(run.listing, format);
}

void config_convert(const ConfigShow& arguments, const config::PluginSource& plugins, const std::string& format,
                    const std::string& file, std::ostream& output, std::ostream& log) {
  const config::Format chosen = format_of(format, file);
  std::vector<config::Node> layers = config::read_layers(arguments.file, arguments.settings);
  if (const config::Dialect* dialect = config::dialect_of(layers[1]))
    for (const config::DialectLine& line : dialect->translate(layers, plugins, {}).lines)
      log << line.one_line() << "\n";
  config::Node tree = std::move(layers[1]);
  config::merge(tree, layers[2]);
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
