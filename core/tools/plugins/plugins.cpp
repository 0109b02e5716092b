#include "tools/plugins/plugins.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "plugins/engine_plugins.hpp"
#include "text/nearest.hpp"
#include "text/table.hpp"
#include "tools/command/command.hpp"

namespace strata::cli {
namespace {

using nlohmann::ordered_json;
using plugins::FoundPlugin;
using plugins::Manifest;
using text::TableFormat;

using Row = std::vector<std::string>;

// The first row is the heading.
void print_rows(const std::vector<Row>& rows, TableFormat format, std::ostream& out) {
  text::Table table;
  for (const std::string& name : rows.front()) table.columns.push_back({name});
  table.rows.assign(rows.begin() + 1, rows.end());
  text::print(table, format, out);
}

std::string note_of(const FoundPlugin& plugin) {
  if (!plugin.problem.empty()) return "unusable: " + plugin.problem;
  if (!plugin.shadowed_by.empty()) return "shadowed by " + plugin.shadowed_by;
  return "";
}

std::string file_of(const FoundPlugin& plugin) {
  return plugin.file.empty() ? plugin.origin : plugin.file;
}

std::vector<std::string> names_of(const std::vector<Capability>& capabilities) {
  std::vector<std::string> names;
  for (const Capability capability : capabilities) names.emplace_back(to_string(capability));
  return names;
}

ordered_json to_json(const OptionSpec& option) {
  return {{"name", option.name},
          {"type", option.type},
          {"default", option.default_text},
          {"minimum", option.minimum},
          {"maximum", option.maximum},
          {"choices", option.choices},
          {"unit", option.unit},
          {"documentation", option.documentation}};
}

ordered_json to_json(const FoundPlugin& plugin) {
  const Manifest& manifest = plugin.manifest;
  ordered_json options = ordered_json::array();
  for (const OptionSpec& option : manifest.options) options.push_back(to_json(option));
  ordered_json with = ordered_json::object();
  for (const auto& [option, value, equivalence] : manifest.equivalence_with)
    with[option + "=" + value] = plugins::to_string(equivalence);
  return {{"plugin", plugins::full_name(manifest)},
          {"version", manifest.version},
          {"description", manifest.description},
          {"author", manifest.author},
          {"license", manifest.license},
          {"file", plugin.file},
          {"capabilities", names_of(manifest.capabilities)},
          {"equivalence", plugins::to_string(manifest.equivalence)},
          {"equivalence_with", with},
          {"abi", plugins::to_string(manifest.abi)},
          {"libtorch", manifest.fingerprint.libtorch},
          {"compiler", manifest.fingerprint.compiler},
          {"state_version", manifest.state_version},
          {"options", options}};
}

// "0 to 64", ">= 0" or the choices; empty: anything of the type.
std::string range_of(const OptionSpec& option) {
  if (!option.choices.empty()) return fmt::format("{}", fmt::join(option.choices, ", "));
  if (option.minimum.empty() && option.maximum.empty()) return "";
  if (option.maximum.empty()) return ">= " + option.minimum;
  if (option.minimum.empty()) return "<= " + option.maximum;
  return option.minimum + " to " + option.maximum;
}

// The options of several plugins as one table; its first column is dropped for one plugin.
std::vector<Row> option_rows(const std::vector<const FoundPlugin*>& plugins, bool with_plugin) {
  std::vector<Row> rows{{"option", "type", "default", "range", "unit", "documentation"}};
  if (with_plugin) rows[0].insert(rows[0].begin(), "plugin");
  for (const FoundPlugin* const plugin : plugins) {
    for (const OptionSpec& option : plugin->manifest.options) {
      rows.push_back(
          {option.name, option.type, option.default_text, range_of(option), option.unit, option.documentation});
      if (with_plugin) rows.back().insert(rows.back().begin(), plugins::full_name(plugin->manifest));
    }
  }
  return rows;
}

std::string listed(const std::vector<Capability>& capabilities) {
  return capabilities.empty() ? "none" : fmt::format("{}", fmt::join(names_of(capabilities), ", "));
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + text + "`";
}

void print_plugin(const FoundPlugin& plugin, TableFormat format, std::ostream& out) {
  const Manifest& manifest = plugin.manifest;
  const std::vector<Row> facts{{plugins::full_name(manifest), manifest.version},
                               {"description", manifest.description},
                               {"author", manifest.author},
                               {"license", manifest.license},
                               {"file", file_of(plugin)},
                               {"capabilities", listed(manifest.capabilities)},
                               {"equivalence", plugins::equivalences(manifest)},
                               {"plugin ABI", plugins::to_string(manifest.abi)},
                               {"libtorch", manifest.fingerprint.libtorch},
                               {"compiler", manifest.fingerprint.compiler}};
  print_rows(facts, format, out);
  out << "\n";
  if (manifest.options.empty()) {
    out << "no options\n";
  } else {
    print_rows(option_rows({&plugin}, false), format, out);
  }
}

const FoundPlugin& find(plugins::PluginRegistry& registry, const std::string& which) {
  const std::size_t slash = which.find('/');
  if (slash == 0) return registry.find_file(which);
  const std::string kind = which.substr(0, slash);
  if (slash == std::string::npos) {
    throw UserError("plugin '{}': give KIND/NAME, as in `strata plugins list`, or an absolute path", which);
  }
  const std::optional<PluginKind> known = plugin_kind_from_string(kind);
  if (which.starts_with('.'))
    throw UserError("plugin '{}' is a relative path; give an absolute path, or KIND/NAME", which);
  if (!known) {
    throw UserError("plugin '{}': '{}' is not a kind of plugin: {}", which, kind,
                    text::suggestion(kind, {plugin_kind_names.begin(), plugin_kind_names.end()}));
  }
  return registry.find(*known, which.substr(slash + 1));
}

}  // namespace

std::string range_with_unit(const OptionSpec& option) {
  const std::string range = range_of(option);
  const std::string unit = option.type == "size" ? "" : option.unit;  // a size is written with its own
  return range + (range.empty() || unit.empty() ? "" : " ") + unit;
}

std::string cases_apart(std::string text, const OptionSpec& option) {
  const auto find = [&](const std::string& end, const std::string& choice) { return text.find(end + choice + ":"); };
  const bool are_cases = std::ranges::any_of(
      option.choices, [&](const std::string& choice) { return find(". ", choice) != std::string::npos; });
  if (!are_cases) return text;
  for (const std::string& choice : option.choices)
    for (const char* const end : {". ", "; "})
      if (const std::size_t at = find(end, choice); at != std::string::npos) text[at + 1] = '\n';
  return text;
}

void print_options(const std::vector<const FoundPlugin*>& plugins, std::ostream& out) {
  for (const FoundPlugin* const plugin : plugins) {
    const Manifest& manifest = plugin->manifest;
    out << "\n## " << plugins::full_name(manifest) << "\n\n"
        << manifest.description << ". Equivalence: " << plugins::equivalences(manifest)
        << ". Capabilities: " << listed(manifest.capabilities) << ".\n\n";
    std::vector<Row> rows{{"option", "type", "default", "range", "description"}};
    for (const OptionSpec& option : manifest.options) {
      rows.push_back({code(option.name), option.type, code(option.default_text), range_with_unit(option),
                      cases_apart(option.documentation, option)});
    }
    if (manifest.options.empty())
      out << "No options.\n";
    else
      print_rows(rows, TableFormat::Markdown, out);
  }
}

std::vector<const FoundPlugin*> usable_plugins(plugins::PluginRegistry& registry) {
  std::vector<const FoundPlugin*> plugins;
  for (const FoundPlugin* const plugin : registry.list())
    if (plugin->problem.empty() && plugin->shadowed_by.empty()) plugins.push_back(plugin);
  return plugins;
}

int plugins_list(plugins::PluginRegistry& registry, const std::string& format, std::ostream& out) {
  const TableFormat chosen = text::parse_table_format(format);
  std::vector<Row> rows{{"plugin", "version", "description", "file", "note"}};
  ordered_json entries = ordered_json::array();
  for (const FoundPlugin* const plugin : registry.list()) {
    const Manifest& manifest = plugin->manifest;
    const std::string name = plugins::full_name(manifest);
    rows.push_back(
        {name.empty() ? "?" : name, manifest.version, manifest.description, file_of(*plugin), note_of(*plugin)});
    entries.push_back({{"plugin", name},
                       {"version", manifest.version},
                       {"description", manifest.description},
                       {"file", plugin->file},
                       {"shadowed_by", plugin->shadowed_by},
                       {"problem", plugin->problem}});
  }
  if (chosen == TableFormat::Json) {
    out << entries.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  } else {
    print_rows(rows, chosen, out);
  }
  return 0;
}

int plugins_show(plugins::PluginRegistry& registry, const std::string& which, bool all, const std::string& format,
                 std::ostream& out) {
  const TableFormat chosen = text::parse_table_format(format);
  if (all != which.empty())
    throw UserError("plugins show: give either one plugin (KIND/NAME or an absolute path) or --all");
  std::vector<const FoundPlugin*> plugins;
  if (all) {
    plugins = usable_plugins(registry);
  } else {
    plugins.push_back(&find(registry, which));
  }
  if (chosen == TableFormat::Json) {
    ordered_json entries = ordered_json::array();
    for (const FoundPlugin* const plugin : plugins) entries.push_back(to_json(*plugin));
    out << (all ? entries : entries[0]).dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  } else if (all && chosen == TableFormat::Markdown) {
    out << "Generated by `strata plugins show --all --format markdown`: the options of every plugin.\n";
    print_options(plugins, out);
  } else if (all || chosen == TableFormat::Csv) {
    print_rows(option_rows(plugins, all), chosen, out);
  } else {
    print_plugin(*plugins[0], chosen, out);
  }
  return 0;
}

void add_plugins(CommandLine& line) {
  using plugins::open_registry;
  CLI::App& plugins = *line.app.add_subcommand("plugins", "List, describe, check and create plugins");
  static std::string plugin_path, format = "table", plugin;
  static bool all = false;
  plugins.require_subcommand(1);
  add_plugin_path(plugins, plugin_path);
  CLI::App& list = *plugins.add_subcommand("list", "List every plugin on the search path, without loading any");
  add_format(list, format);
  line.on(list, [] { return plugins_list(*plugins::open_registry(plugin_path), format, std::cout); });
  CLI::App& show = *plugins.add_subcommand("show", "Describe a plugin and its options");
  show.add_option("plugin", plugin, "KIND/NAME, or the absolute path of a plugin library");
  show.add_flag("--all", all, "Describe every plugin: the option reference");
  add_format(show, format);
  show.footer(
      "  strata plugins show partitioner/zero3\n"
      "  strata plugins show --all --format markdown");
  line.on(show, [] { return plugins_show(*plugins::open_registry(plugin_path), plugin, all, format, std::cout); });
  add_program(line, plugins, "check", "Run the conformance kit on plugins",
              {"strata_conformance", "strata-sdk", "--plugin-path"});
  add_program(line, plugins, "new", "Create a plugin project that builds and passes the conformance kit",
              {"strata_new_plugin", "strata-sdk"});
}

}  // namespace strata::cli
