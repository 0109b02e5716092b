#include <algorithm>

#include "config/defaults.hpp"
#include "config/engine_schema.hpp"
#include "config/layers.hpp"
#include "config/parameter_rules.hpp"
#include "config/run_config.hpp"
#include "config/variants.hpp"

namespace strata::config {
namespace {

// Reads typed values out of the merged tree and writes the listing on the way, in the order of the calls.
class Resolver {
 public:
  Resolver(const Node& tree, const PluginSource& plugins, std::vector<Resolved>& listing)
      : tree_(tree), plugins_(plugins), listing_(listing) {}

  std::int64_t integer(const std::string& path) { return std::get<std::int64_t>(value(path)); }
  double number(const std::string& path) { return std::get<double>(value(path)); }
  std::string text(const std::string& path) { return std::get<std::string>(value(path)); }

  // A value that may be left to be derived. The listing gets its line from `list`, when it is known.
  Given given(const std::string& path) {
    const Node* node = find(tree_, path);
    const Place& place =
        node == nullptr || node->layer == 0 ? tree_.place : node->place;  // no one wrote the defaults wrongly
    if (node == nullptr || is_auto(*node)) return {{}, place};
    return {std::get<std::int64_t>(typed_option(*node, engine_key(path)->option, path)), place};
  }

  void list(const std::string& path, std::int64_t value, const std::string& derived_from) {
    const Node* node = find(tree_, path);
    listing_.push_back(
        {path, std::to_string(value), derived_from.empty() && node != nullptr ? node->origin : derived_from});
  }

  RecomputedLayers layers(const std::string& path) {
    const Node& node = present(path);
    RecomputedLayers result;
    if (node.kind == NodeKind::Scalar && (node.text == "all" || node.text == "none")) {
      result.all = node.text == "all";
      listing_.push_back({path, node.text, node.origin});
      return result;
    }
    if (node.kind != NodeKind::Sequence) {
      throw UserError(node.place, path + ": all, none or a list of layer numbers like [0, 2] is expected");
    }
    OptionSpec list = engine_key(path)->option;
    list.type = "integers";
    list.minimum = "0";
    result.layers = std::get<std::vector<std::int64_t>>(typed_option(node, list, path));
    std::sort(result.layers.begin(), result.layers.end());
    const auto twice = std::adjacent_find(result.layers.begin(), result.layers.end());
    if (twice != result.layers.end())
      throw UserError(node.place, path + ": layer " + std::to_string(*twice) + " is listed twice");
    listing_.push_back({path, to_text(result.layers), node.origin});
    return result;
  }

  PluginChoice plugin(const std::string& slot_path) {
    const PluginSlot& slot = *plugin_slot(slot_path);
    const Node& node = present(slot.path + ".plugin");
    const PluginSchema schema = plugins_.find(slot.kind, node.text).value();  // check_keys made sure of it
    PluginChoice choice{slot.path, slot.kind, node.text, schema.name, {}, node.place};
    listing_.push_back({slot.path + ".plugin", node.text, node.origin});
    for (const OptionSpec& spec : schema.options) {
      if (spec.name == "plugin" || engine_key(slot.path + "." + spec.name) != nullptr) {
        throw UserError(node.place, "plugin " + slot.kind + "/" + schema.name + " has an option " + spec.name +
                                        ", which is the engine's own key in " + slot.path +
                                        "; the plugin must rename it");
      }
      choice.options.set(spec.name, option(slot, schema.name, spec));
    }
    const Node* given = find(tree_, slot.path)->get(schema.name);
    choice.options_place = given == nullptr || given->entries.empty() ? node.place : given->entries.front().value.place;
    if (given != nullptr)
      for (const Entry& entry : given->entries) choice.given.push_back(entry.key);
    return choice;
  }

  std::optional<PluginChoice> optional_plugin(const std::string& slot_path) {
    const Node* node = find(tree_, slot_path + ".plugin");
    if (node != nullptr && node->text != "none") return plugin(slot_path);
    listing_.push_back({slot_path + ".plugin", "none", node == nullptr ? "not given" : node->origin});
    return {};
  }

  void rules() {
    for (const EngineKey& key : engine_keys()) {
      const Node* node = key.option.type == "rule" ? find(tree_, key.option.name) : nullptr;
      if (node == nullptr) continue;
      listing_.push_back({key.option.name, rule_text(*node), node->origin});
    }
  }

 private:
  static std::string rule_text(const Node& node) {
    if (node.kind == NodeKind::Scalar) return node.text;
    std::string text;
    for (const Node& item : node.items) text += (text.empty() ? "" : ", ") + rule_text(item);
    for (const Entry& entry : node.entries)
      text += (text.empty() ? "" : ", ") + entry.key + ": " + rule_text(entry.value);
    return node.kind == NodeKind::Map ? "{" + text + "}" : "[" + text + "]";
  }

  const Node& present(const std::string& path) const {
    if (const Node* node = find(tree_, path)) return *node;
    const EngineKey* key = engine_key(path);
    throw UserError(tree_.place, path + " must be given" +
                                     (key == nullptr ? ": the name of a plugin" : ": " + key->option.documentation));
  }

  OptionValue value(const std::string& path) {
    const Node& node = present(path);
    if (is_auto(node))
      throw UserError(node.place, path + ": auto has no rule here; give the value (" +
                                      engine_key(path)->option.documentation + ")");
    OptionValue value = typed_option(node, engine_key(path)->option, path);
    listing_.push_back({path, to_text(value), node.origin});
    return value;
  }

  OptionValue option(const PluginSlot& slot, const std::string& name, const OptionSpec& spec) {
    const std::string path = slot.path + "." + name + "." + spec.name;
    // Not find(path): a name from a manifest may have dots.
    const Node* section = find(tree_, slot.path)->get(name);
    const Node* node = section == nullptr ? nullptr : section->get(spec.name);
    OptionValue value = node == nullptr ? parse_option(spec, spec.default_text) : typed_option(*node, spec, path);
    listing_.push_back({path, to_text(value), node == nullptr ? "default of " + slot.kind + "/" + name : node->origin});
    return value;
  }

  const Node& tree_;
  const PluginSource& plugins_;
  std::vector<Resolved>& listing_;
};

void resolve_batch(Resolver& resolver, RunConfig& run) {
  const BatchRequest request{resolver.given("train.micro_batch"), resolver.given("train.accumulation"),
                             resolver.given("train.global_batch"), run.parallel};
  const Batch batch = solve_batch(request);
  run.train.micro_batch = batch.micro_batch;
  run.train.accumulation = batch.accumulation;
  run.train.global_batch = batch.global_batch;
  resolver.list("train.micro_batch", batch.micro_batch, batch.micro_batch_origin);
  resolver.list("train.accumulation", batch.accumulation, batch.accumulation_origin);
  resolver.list("train.global_batch", batch.global_batch, batch.global_batch_origin);
}

void resolve_parallel(Resolver& resolver, const World& world, RunConfig& run) {
  const Given pipeline{resolver.integer("parallel.pipeline"), resolver.given("parallel.pipeline").place};
  const Given tensor{resolver.integer("parallel.tensor"), resolver.given("parallel.tensor").place};
  const Given data = resolver.given("parallel.data");
  run.parallel = solve_parallel(world.size, world.origin, pipeline, tensor, data);
  resolver.list("parallel.data", run.parallel.data, data.value ? "" : run.parallel.text);
}

void resolve_data(Resolver& resolver, const Node& tree, const PluginSource& plugins, RunConfig& run) {
  run.data.plugin = resolver.plugin("data");
  run.data.path = resolver.text("data.path");
  if (run.data.path.empty())
    throw UserError(find(tree, "data.path")->place, "data.path: empty, where the path of a token file is expected");
  const std::string order = resolver.text("data.order");
  run.data.order = order == "own" ? DataOrder::Own : order == "shuffled" ? DataOrder::Shuffled : DataOrder::Sequential;
  if (run.data.order == DataOrder::Own && !plugins.find("data", run.data.plugin.plugin)->can(Capability::OwnOrder))
    throw UserError(find(tree, "data.order")->place, "data.order: own, and the data plugin " + run.data.plugin.name +
                                                         " has no order of its own; choose sequential or shuffled");
}

void resolve_validation(Resolver& resolver, const Node& tree, RunConfig& run) {
  ValidationConfig& validation = run.validation;
  validation.data.path = resolver.text("validation.path");
  validation.every = resolver.integer("validation.every");
  const Node& every = *find(tree, "validation.every");
  if (validation.data.path.empty() && validation.every > 0)
    throw UserError(every.place, "validation.every is " + every.text + ", and validation.path names no token file");
  const Given samples = resolver.given("validation.samples");
  validation.samples = samples.value.value_or(0);
  if (validation.data.path.empty()) return;
  if (samples.value)
    resolver.list("validation.samples", *samples.value, "");
  else
    run.listing.push_back({"validation.samples", "all", find(tree, "validation.samples")->origin});
  validation.data.plugin = resolver.plugin("validation");
}

// Found here and not when ranks connect, so that all of them stop together.
void check_hosts(const PluginChoice& communicator, const World& world, const PluginSource& plugins) {
  const std::optional<PluginSchema> found = plugins.find("communicator", communicator.plugin);
  if (world.size > 1 && world.one_host == false && found && found->can(Capability::OneHost))
    throw UserError(communicator.place, "communicator.plugin: " + communicator.plugin +
                                            " connects ranks of one host only, and this run's " +
                                            std::to_string(world.size) + " ranks (" + world.origin +
                                            ") are on several; leave it out, or name one that crosses hosts");
}

}  // namespace

bool RecomputedLayers::covers(std::int64_t layer) const {
  return all || std::binary_search(layers.begin(), layers.end(), layer);
}

std::vector<const PluginChoice*> RunConfig::plugins() const {
  std::vector<const PluginChoice*> chosen{&device,    &communicator.plugin, &model.plugin, &partitioner,
                                          &precision, &scheduler,           &optimizer,    &learning_rate.plugin};
  if (offload.optimizer) chosen.push_back(&*offload.optimizer);
  if (!data.path.empty()) chosen.push_back(&data.plugin);
  if (!validation.data.path.empty()) chosen.push_back(&validation.data.plugin);
  return chosen;
}

std::vector<Node> read_layers(const std::string& file, const std::vector<std::string>& settings) {
  return {read_defaults(), read_file(file), read_settings(settings)};
}

std::string plugin_path(const std::vector<Node>& layers) {
  std::string path;
  for (const Node& layer : layers) {
    const Node* node = layer.get("plugin_path");
    if (node != nullptr)
      path = std::get<std::string>(typed_option(*node, engine_key("plugin_path")->option, "plugin_path"));
  }
  return path;
}

RunConfig resolve(std::vector<Node> layers, const World& world, const PluginSource& plugins, DataSection data) {
  strata_check(world.size >= 1, "a world has at least one rank");
  Node tree = combine(std::move(layers), plugins);
  settle_automatic(tree, plugins, world.on_one_host());
  validate_as_trained(tree, plugins);
  check_keys(tree, plugins);

  RunConfig run;
  run.world_size = world.size;
  Resolver resolver(tree, plugins, run.listing);
  run.device = resolver.plugin("device");
  run.plugin_path = resolver.text("plugin_path");
  run.model.plugin = resolver.plugin("model");
  run.model.init = resolver.text("model.init");
  run.model.seq_len = resolver.integer("model.seq_len");
  if (data == DataSection::Required || find(tree, "data.path") != nullptr) resolve_data(resolver, tree, plugins, run);
  resolve_validation(resolver, tree, run);
  run.train.steps = resolver.integer("train.steps");
  run.train.clip = resolver.number("train.clip");
  run.train.seed = resolver.integer("train.seed");
  run.train.log_every = resolver.integer("train.log_every");
  run.learning_rate.plugin = resolver.plugin("learning_rate");
  if (find(tree, "learning_rate.base") != nullptr) run.learning_rate.base = resolver.number("learning_rate.base");
  run.learning_rate.warmup = resolver.integer("learning_rate.warmup");
  const bool by_default = find(tree, "learning_rate.plugin")->layer == 0;
  run.learning_rate.place = by_default ? tree.place : run.learning_rate.plugin.options_place;
  resolve_parallel(resolver, world, run);
  resolve_batch(resolver, run);
  run.partitioner = resolver.plugin("partitioner");
  run.precision = resolver.plugin("precision");
  run.scheduler = resolver.plugin("scheduler");
  run.optimizer = resolver.plugin("optimizer");
  if (const Node* rules = find(tree, "parameters")) {
    run.parameters = read_parameter_rules(*rules, run.learning_rate, run.optimizer);
    run.listing.push_back({"parameters", parameter_rules_text(*rules), rules->origin});
  }
  if (const Node* variants = find(tree, "compare")) read_variants(*variants);  // used by `strata compare` alone
  run.recompute = resolver.layers("activations.checkpoint");
  run.offload.optimizer = resolver.optional_plugin("offload.optimizer");
  run.communicator.plugin = resolver.plugin("communicator");
  check_hosts(run.communicator.plugin, world, plugins);
  run.communicator.timeout_s = resolver.number("communicator.timeout_s");
  run.checkpoint.path = resolver.text("checkpoint.path");
  run.checkpoint.every = resolver.integer("checkpoint.every");
  run.checkpoint.keep = resolver.integer("checkpoint.keep");
  run.export_path = resolver.text("export");
  run.metrics_csv = resolver.text("metrics.csv");
  resolver.rules();
  return run;
}

}  // namespace strata::config
