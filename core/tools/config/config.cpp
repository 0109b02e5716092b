#include "tools/config/config.hpp"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "config/listing.hpp"
#include "data/file.hpp"
#include "plugins/engine_plugins.hpp"
#include "resolve/dialect.hpp"
#include "resolve/resolve_run.hpp"
#include "text/table.hpp"
#include "tools/command/command.hpp"
#include "tools/config/write_tree.hpp"
#include "tools/train/show_learning_rate.hpp"

namespace strata::cli {

namespace {

config::Format format_of(const std::string& format, const std::string& file) {
  const std::string extension = std::filesystem::path(file).extension().string();
  const std::string name = !format.empty() ? format : extension.empty() ? "yaml" : extension.substr(1);
  if (name == "yaml" || name == "yml") return config::Format::Yaml;
  if (name == "toml") return config::Format::Toml;
  if (name == "json") return config::Format::Json;
  throw UserError(Place{file}, "the file name must end in .yaml, .yml, .toml or .json; or give --format");
}

void print_listing(const std::vector<config::Resolved>& listing, text::TableFormat format, std::ostream& output) {
  text::Table table{{{"key"}, {"value"}, {"origin"}}, {}};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const config::Resolved& row : listing) {
    const std::string value = config::to_text(row.value);
    rows.push_back({{"key", row.path}, {"value", value}, {"origin", row.origin}});
    table.rows.push_back({row.path, config::one_line(value, std::string::npos), row.origin});
  }
  if (format == text::TableFormat::Json)
    output << rows.dump(2) << "\n";
  else
    text::print(table, format, output);
}

void add_config_options(CLI::App& command, ConfigShow& config) {
  add_config_file(command, "config", config.file, config.settings)->required();
  add_model_and_data(command, config.settings);
}

void add_ranks(CLI::App& command, config::World& world) {
  command
      .add_option_function<int>(
          "--nproc", [&world](int ranks) { world = config::World::started_here(ranks); }, "Number of ranks of the run")
      ->check(CLI::Range(1, 1 << 20));
}

// Translates trees[1], and returns the lines that say how.
std::vector<resolve::DialectLine> translate(const resolve::Dialect& dialect, std::vector<config::Node>& trees,
                                            const std::shared_ptr<plugins::PluginRegistry>& registry) {
  const plugins::EnginePlugins plugins(registry);
  resolve::DialectAnswers answers;
  for (;;) {
    std::vector<config::Node> own = trees;
    resolve::Translation translation = dialect.translate(own, plugins, answers);
    if (!translation.asks_hidden_size || config::find(own.back(), "model") == nullptr) {
      trees = std::move(own);
      return std::move(translation.lines);
    }
    // The model's width depends on no batch and on no layout, which may suit a number of ranks that is not known here.
    std::vector<std::string> settings{"train.micro_batch=1", "train.accumulation=1", "train.global_batch=auto"};
    for (const Axis axis : axes) settings.push_back(config::key_of(axis) + (axis == Axis::Data ? "=auto" : "=1"));
    own.push_back(config::read_settings(settings));
    const config::World world;
    const config::RunConfig run = config::resolve(std::move(own), world, plugins, config::DataSection::Optional);
    dialect.answer(translation, run, world, *registry, answers);
  }
}

}  // namespace

void config_show(const ConfigShow& arguments, const ResolveConfig& resolve, std::ostream& output) {
  const text::TableFormat format = text::parse_table_format(arguments.format);
  const config::RunConfig run = resolve(config::read_trees(arguments.file, arguments.settings), arguments.world);
  if (arguments.learning_rate) {
    const auto registry = plugins::open_registry(run.plugin_path);
    return write_learning_rates(step::RunLearningRate(run, *registry), format, output);
  }
  print_listing(config::listing(run), format, output);
}

void config_convert(const ConfigShow& arguments, std::shared_ptr<plugins::PluginRegistry> registry,
                    const std::string& format, const std::string& file, std::ostream& output, std::ostream& log) {
  const config::Format chosen = format_of(format, file);
  std::vector<config::Node> trees = config::read_trees(arguments.file, arguments.settings);
  if (const resolve::Dialect* dialect = resolve::dialect_of(trees[1]))
    for (const resolve::DialectLine& line : translate(*dialect, trees, registry)) log << line.one_line() << "\n";
  config::Node tree = std::move(trees[1]);
  config::merge(tree, trees[2]);
  const std::string text = write_tree(tree, chosen);
  if (file.empty()) {
    output << text;
    return;
  }
  std::error_code none;
  if (std::filesystem::equivalent(file, arguments.file, none))
    throw UserError(Place{file}, "is the config that is converted; name another file to write");
  data::OutputFile out(file, data::Existing::Replace);
  out.write_at(0, text.data(), text.size());
  out.finish();
}

void add_config(CommandLine& line) {
  using plugins::EnginePlugins;
  using plugins::open_registry;
  CLI::App& config = *line.app.add_subcommand("config", "Show, explain and convert configs");
  static ConfigShow arguments;
  static std::string format, output, key, plugin_path;
  config.require_subcommand(1);
  CLI::App& show = *config.add_subcommand("show", "Print every config value and where it comes from");
  add_config_options(show, arguments);
  add_ranks(show, arguments.world);
  add_format(show, arguments.format);
  show.add_flag("--lr", arguments.learning_rate, "Print the learning rate of every step instead of the values");
  show.footer(
      "  strata config show run.yaml --nproc 8\n"
      "  strata config show run.yaml --lr --format csv");
  const ResolveConfig resolve = [](const std::vector<config::Node>& trees, const config::World& world) {
    const auto registry = plugins::open_registry(config::plugin_path(trees));
    return resolve::resolve_run(trees, world, registry, EnginePlugins(registry)).config;
  };
  line.on(show, [resolve] { return config_show(arguments, resolve, std::cout), 0; });
  CLI::App& explain = *config.add_subcommand("explain", "Describe a key: type, default, range, effect, example");
  explain.add_option("key", key, "Key, option of a plugin, or section: train.clip, optimizer.betas, checkpoint")
      ->required();
  add_plugin_path(explain, plugin_path);
  line.on(explain, [] { return config_explain(*plugins::open_registry(plugin_path), key, std::cout), 0; });
  CLI::App& conflicts =
      *config.add_subcommand("conflicts", "List features that cannot be combined, all or those of a config");
  static ConfigConflicts combined;
  add_config_file(conflicts, "config", combined.file, combined.settings);
  add_model_and_data(conflicts, combined.settings);
  add_ranks(conflicts, combined.world);
  add_format(conflicts, combined.format);
  conflicts.footer(
      "  strata config conflicts\n"
      "  strata config conflicts run.yaml --set step_policy=local");
  line.on(conflicts, [] { return config_conflicts(combined, std::cout), 0; });
  CLI::App& reference = *config.add_subcommand("reference", "Print every key and every plugin's options, in Markdown");
  add_plugin_path(reference, plugin_path);
  line.on(reference, [] { return config_reference(*plugins::open_registry(plugin_path), std::cout), 0; });
  CLI::App& convert = *config.add_subcommand(
      "convert", "Convert a config or a ds_config.json to a Strata config in YAML, TOML or JSON");
  add_config_options(convert, arguments);
  convert.add_option("--format", format, "Output format (default: from the name of the output file, else yaml)")
      ->check(CLI::IsMember({"yaml", "toml", "json"}));
  convert.add_option("-o,--output", output, "File to write (default: stdout)");
  convert.footer("  strata config convert ds_config.json --model gpt_neox:pythia-160m --data train.bin -o run.yaml");
  line.on(convert, [] {
    const auto registry =
        plugins::open_registry(config::plugin_path(config::read_trees(arguments.file, arguments.settings)));
    return config_convert(arguments, registry, format, output, std::cout, std::cerr), 0;
  });
}

}  // namespace strata::cli
