#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "config/defaults.hpp"
#include "plan/dry_run.hpp"
#include "plan/model_facts.hpp"
#include "plugins/engine_plugins.hpp"
#include "text/formatted.hpp"
#include "text/json.hpp"
#include "text/nearest.hpp"
#include "text/table.hpp"
#include "tools/chosen/option_values.hpp"
#include "tools/command/model_settings.hpp"
#include "tools/plan/model_shape.hpp"
#include "tools/plan/plan.hpp"

namespace strata::cli {

namespace {

using config::Node;

// One model of the table.
struct ModelRow {
  std::string name;            // as given: "7.5e9", "NAME:PRESET"
  std::int64_t asked = 0;      // parameter count; 0: the model decides
  std::vector<Node> settings;  // of the config
  std::string config_text;     // of a config.json, or empty
  ModelShape shape;            // for --params
};

struct Cell {
  const ModelRow* model;
  std::int64_t ranks;
  std::string bookkeeping;
  std::string partitioner;
  plan::ModelState state;
};

Node setting(const std::string& key, const std::string& value, const std::string& origin) {
  return config::parse_setting(key + "=" + nlohmann::json(value).dump(), origin);
}

Node setting(const std::string& key, std::int64_t value, const std::string& origin) {
  return config::parse_setting(key + "=" + std::to_string(value), origin);
}

// Configs, registry and plugins that all cells share.
class Sweep {
 public:
  explicit Sweep(const PlanArguments& arguments)
      : arguments_(arguments),
        table_(config::read_file(config::configs_folder() + "/plan/table.yaml")),
        defaults_(config::read_defaults()),
        base_(arguments.config.empty() ? section("config") : config::read_file(arguments.config)),
        settings_(config::read_settings(arguments.settings)),
        registry_(plugins::open_registry(config::plugin_path({defaults_, base_, settings_}))),
        plugins_(registry_) {}

  std::vector<std::string> bookkeeping() const {
    if (!arguments_.bookkeeping.empty() || !arguments_.config.empty()) return arguments_.bookkeeping;
    return {section("bookkeeping").entries.at(0).key};
  }

  std::vector<ModelRow> models() {
    std::vector<ModelRow> rows;
    for (const std::string& text : arguments_.params) rows.push_back(shaped(text));
    for (const std::string& text : arguments_.models) rows.push_back(named(text));
    if (rows.empty() && arguments_.config.empty())
      throw UserError("--table: no model given; add --params 7.5e9, --model PLUGIN:PRESET or a config");
    if (rows.empty()) rows.push_back({arguments_.config, 0, {}, "", {}});
    return rows;
  }

  // The model state of the rank with the most: the first rank of one of the pipeline stages.
  plan::ModelState state(const ModelRow& model, std::int64_t ranks, const std::string& bookkeeping,
                         const std::string& partitioner) {
    std::vector<Node> own = model.settings;
    if (!partitioner.empty()) own.push_back(setting("partitioner.plugin", partitioner, "--partitioners"));
    const config::RunConfig config = resolve(bookkeeping, model.asked > 0, own, ranks);
    const std::string text = model.config_text.empty() ? plan::model_config(config) : model.config_text;
    plan::ModelState most;
    for (std::int64_t stage = 0; stage < config.parallel.size(Axis::Pipeline); ++stage) {
      const auto rank = static_cast<int>(stage * (ranks / config.parallel.size(Axis::Pipeline)));
      const plan::ModelState state = plan::model_state(config, *registry_, rank, text);
      if (state.total() > most.total()) most = state;
    }
    return most;
  }

  std::string partitioner_of_config() const {
    const Node* node = config::find(base_, "partitioner");
    if (node != nullptr && node->kind == config::NodeKind::Map) node = node->get("plugin");
    if (node == nullptr) node = config::find(defaults_, "partitioner.plugin");
    return node->text;
  }

 private:
  const Node& section(const std::string& name) const {
    const Node* node = table_.get(name);
    if (node == nullptr || node->entries.empty())
      throw UserError(table_.place, "the section `{}` is missing or empty", name);
    return *node;
  }

  // Config layers, later ones win. Batch sizes are fixed because they do not affect model state.
  config::RunConfig resolve(const std::string& bookkeeping, bool shaped, const std::vector<Node>& own,
                            std::int64_t ranks) {
    std::vector<Node> trees{defaults_, base_};
    if (shaped) trees.push_back(shape_);
    if (!bookkeeping.empty()) trees.push_back(bookkeeping_of(bookkeeping));
    trees.push_back(settings_);
    trees.insert(trees.end(), own.begin(), own.end());
    trees.push_back(config::parse_setting("train={micro_batch: 1, accumulation: 1, global_batch: auto}", "--table"));
    trees.push_back(config::parse_setting("parallel.data=auto", "--table"));
    return config::resolve(std::move(trees), {ranks, "--ranks"}, plugins_, config::DataSection::Optional);
  }

  const Node& bookkeeping_of(const std::string& name) const {
    const Node* node = section("bookkeeping").get(name);
    if (node != nullptr) return *node;
    std::vector<std::string> names;
    for (const config::Entry& entry : section("bookkeeping").entries) names.push_back(entry.key);
    throw UserError("--bookkeeping {}: {}", name, text::suggestion(name, names));
  }

  static std::vector<Node> sizes(const ModelShape& shape) {
    return {setting("model.hidden_size", shape.hidden_size, "--params"),
            setting("model.layers", shape.layers, "--params"), setting("model.heads", shape.heads, "--params")};
  }

  ModelRow shaped(const std::string& text) {
    const std::int64_t parameters = parameters_value("--params", text);
    prepare_shape();
    const std::vector<std::string> names = bookkeeping();
    const config::RunConfig config = resolve(names.empty() ? "" : names.front(), true, sizes({64, 1, 1, 0}), 1);
    const plugins::FoundPlugin& plugin = registry_->find(PluginKind::Model, config.model.plugin.plugin);
    OptionValues options = config.model.plugin.options;
    const auto count = [&](const ModelShape& shape) {
      options.set("hidden_size", shape.hidden_size);
      options.set("layers", shape.layers);
      options.set("heads", shape.heads);
      const std::unique_ptr<PluginContext> context = plugins::asking_context(plugin, options);
      return plan::parameters_of(*registry_->create<Model>(config.model.plugin.plugin, *context));
    };
    ModelRow row{text, parameters, {}, "", shape_model(parameters, count)};
    row.settings = sizes(row.shape);
    return row;
  }

  // Sets shape_ to the options of table.yaml that the model plugin has. Throws UserError if it has no hidden_size,
  // layers or heads; resolve() would only report an unknown key.
  void prepare_shape() {
    for (const char* key : {"model.hidden_size", "model.layers", "model.heads"})
      if (config::find(settings_, key) != nullptr)
        throw UserError("--set {} contradicts --params, which chooses this size; leave one out", key);
    shape_ = section("shape");
    Node merged = base_;
    config::merge(merged, settings_);
    const Node* name = config::find(merged, "model.plugin");
    if (name == nullptr || name->kind != config::NodeKind::Scalar) return;  // resolve() reports it
    const std::optional<config::PluginSchema> schema = plugins_.find("model", name->text);
    if (!schema) return;
    for (const char* needed : {"hidden_size", "layers", "heads"})
      if (std::none_of(schema->options.begin(), schema->options.end(),
                       [&](const OptionSpec& option) { return option.name == needed; }))
        throw UserError(
            "--params sets the model options hidden_size, layers and heads; model/{} has no option {}; give its sizes "
            "in a config, or use --model",
            schema->name, needed);
    Node* model = shape_.get("model");
    if (model == nullptr) return;
    std::vector<config::Entry> known;
    for (const config::Entry& entry : model->entries)
      if (std::any_of(schema->options.begin(), schema->options.end(),
                      [&](const OptionSpec& option) { return option.name == entry.key; }))
        known.push_back(entry);
    model->entries = known;
  }

  static ModelRow named(const std::string& text) {
    const std::size_t colon = text.find(':');
    const std::string which = colon == std::string::npos ? "" : text.substr(colon + 1);
    const bool is_file =
        which.find('/') != std::string::npos || which.ends_with(".json") || std::filesystem::is_directory(which);
    ModelRow row{text, 0, {}, "", {}};
    for (const std::string& one : model_settings(is_file ? text.substr(0, colon) : text))
      row.settings.push_back(config::parse_setting(one, "--model"));
    if (!is_file) return row;
    const std::string path = std::filesystem::is_directory(which) ? which + "/config.json" : which;
    try {
      row.config_text = text::read_json(InputFile(path)).object().json().dump();
    } catch (const UserError& error) {
      throw UserError("--model {}: {}; give a Hugging Face config.json", text, error.what());
    }
    return row;
  }

  const PlanArguments& arguments_;
  Node table_;  // configs/plan/table.yaml
  Node defaults_;
  Node base_;
  Node settings_;
  Node shape_;  // its section, for the model's plugin
  std::shared_ptr<plugins::PluginRegistry> registry_;
  plugins::EnginePlugins plugins_;
};

// Gigabytes of 10^9 bytes, as papers print them.
std::string gigabytes(std::int64_t bytes) {
  const double value = static_cast<double>(bytes) / 1e9;
  return text::formatted(value < 1000.0 ? "%.4g" : "%.0f", value);
}

nlohmann::json cell_json(const Cell& cell) {
  nlohmann::json json = {{"model", cell.model->name},
                         {"params", cell.model->asked > 0 ? cell.model->asked : cell.state.parameters},
                         {"parameters", cell.state.parameters},
                         {"ranks", cell.ranks},
                         {"partitioner", cell.partitioner},
                         {"bytes", cell.state.total()},
                         {"parameter_bytes", cell.state.parameter_bytes},
                         {"gradient_bytes", cell.state.gradient_bytes},
                         {"optimizer_bytes", cell.state.optimizer_bytes}};
  json["bookkeeping"] = cell.bookkeeping.empty() ? "config" : cell.bookkeeping;
  return json;
}

std::string shape_text(const ModelRow& model) {
  const ModelShape& shape = model.shape;
  const double error = static_cast<double>(shape.parameters) / static_cast<double>(model.asked) - 1.0;
  return format("{} parameters: hidden_size {}, layers {}, heads {} have {}{}", model.name, shape.hidden_size,
                shape.layers, shape.heads, shape.parameters, text::formatted(" (%+.3f %%)", 100.0 * error));
}

void print_csv(const std::vector<Cell>& cells, std::ostream& out) {
  const std::vector<std::string> names{"model",       "params", "parameters",      "ranks",          "bookkeeping",
                                       "partitioner", "bytes",  "parameter_bytes", "gradient_bytes", "optimizer_bytes"};
  text::Table table;
  for (const std::string& name : names) table.columns.push_back({name, true});
  for (const Cell& cell : cells) {
    const nlohmann::json json = cell_json(cell);
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& name : names)
      row.push_back(json[name].is_string() ? json[name].get<std::string>() : json[name].dump());
  }
  text::print(table, text::TableFormat::Csv, out);
}

// A row for each model, number of ranks and bookkeeping; a column for each partitioner.
void print_text(const std::vector<ModelRow>& models, const std::vector<Cell>& cells,
                const std::vector<std::string>& partitioners, text::TableFormat format, std::ostream& out) {
  const std::string paragraph = format == text::TableFormat::Markdown ? "\n\n" : "\n";
  for (const ModelRow& model : models)
    if (model.asked > 0) out << shape_text(model) << paragraph;
  out << "model state in GB (10^9 bytes) on the rank with the most: parameters, gradients and optimizer state as the "
         "partitioner allocates them"
      << paragraph;
  const bool bookkeeping = !cells.front().bookkeeping.empty();
  text::Table table{{{"model", false}, {"ranks", true}}, {}};
  if (bookkeeping) table.columns.push_back({"bookkeeping", false});
  for (const std::string& name : partitioners) table.columns.push_back({name, true});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    if (i % partitioners.size() == 0) {
      table.rows.push_back({cell.model->name, std::to_string(cell.ranks)});
      if (bookkeeping) table.rows.back().push_back(cell.bookkeeping);
    }
    table.rows.back().push_back(gigabytes(cell.state.total()));
  }
  text::print(table, format, out);
}

}  // namespace

int plan_table(const PlanArguments& arguments, std::ostream& out) {
  const text::TableFormat format = text::parse_table_format(arguments.format);
  if (!arguments.memory.empty())
    throw UserError(
        "--memory is for the plan of one run; a table counts only model state: leave out --memory or --table");
  for (const std::string& name : arguments.partitioners)
    if (name.empty())
      throw UserError("--partitioners has an empty name; give names of `strata plugins list`, e.g. zero1,zero3");
  Sweep sweep(arguments);
  const std::vector<ModelRow> models = sweep.models();
  std::vector<std::string> bookkeeping = sweep.bookkeeping();
  if (bookkeeping.empty()) bookkeeping.emplace_back();
  const std::vector<std::string> partitioners =
      arguments.partitioners.empty() ? std::vector<std::string>{sweep.partitioner_of_config()} : arguments.partitioners;
  std::vector<Cell> cells;
  for (const ModelRow& model : models)
    for (const std::string& ranks : arguments.ranks)
      for (const std::string& books : bookkeeping)
        for (const std::string& partitioner : partitioners)
          cells.push_back({&model, ranks_value(ranks), books, partitioner,
                           sweep.state(model, ranks_value(ranks), books, partitioner)});
  if (format == text::TableFormat::Json) {
    nlohmann::json json = {{"rows", nlohmann::json::array()}, {"shapes", nlohmann::json::array()}};
    for (const Cell& cell : cells) json["rows"].push_back(cell_json(cell));
    for (const ModelRow& model : models)
      if (model.asked > 0)
        json["shapes"].push_back({{"params", model.asked},
                                  {"parameters", model.shape.parameters},
                                  {"hidden_size", model.shape.hidden_size},
                                  {"layers", model.shape.layers},
                                  {"heads", model.shape.heads}});
    out << json.dump(2) << "\n";
  } else if (format == text::TableFormat::Csv) {
    print_csv(cells, out);
  } else {
    print_text(models, cells, partitioners, format, out);
  }
  return 0;
}

}  // namespace strata::cli
