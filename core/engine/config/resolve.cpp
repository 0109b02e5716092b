#include <algorithm>
#include <tuple>

#include "config/conflicts.hpp"
#include "config/defaults.hpp"
#include "config/idle_keys.hpp"
#include "config/keys.hpp"
#include "config/merge_trees.hpp"
#include "config/run_config.hpp"

namespace strata::config {
namespace {

// Which layers keep only their input: none, all, or a sorted list.
OptionValue typed_layers(const Node& node, const std::string& path) {
  if (node.kind == NodeKind::Scalar && (node.text == "all" || node.text == "none")) return node.text;
  if (node.kind != NodeKind::Sequence)
    throw UserError(node.place, "{} is {}; it must be all, none, or a list of layer numbers, as in [0, 2]", path,
                    node.kind == NodeKind::Scalar ? shown(node.text) : "a section");
  OptionSpec list;
  list.type = "integers";
  list.minimum = "0";
  auto layers = std::get<std::vector<std::int64_t>>(typed_option(node, list, path));
  std::sort(layers.begin(), layers.end());
  const auto twice = std::adjacent_find(layers.begin(), layers.end());
  if (twice != layers.end()) throw UserError(node.place, "{}: layer {} is listed twice", path, *twice);
  return layers;
}

OptionValue typed_value(const Node& node, const Key& key) {
  if (key.option.type == "layers") return typed_layers(node, key.option.name);
  return typed_option(node, key.option, key.option.name);
}

// Reads typed values out of the merged tree into a RunConfig, with their origins.
class Resolver {
 public:
  Resolver(const Node& tree, const PluginSource& plugins, RunConfig& run) : tree_(tree), plugins_(plugins), run_(run) {}

  // Fills the key's field. A value of `auto` is derived later; `list` adds its line.
  void read(const Key& key) {
    if (!key.kind.empty()) return choose(key);
    const std::string& path = key.option.name;
    const Node* node = find(tree_, path);
    const bool rule = key.option.type == "rule";
    if ((!key.field.set && !rule) || (node == nullptr && (rule || !key.automatic.empty()))) return;
    const Node& given = present(path);
    if (!rule && is_auto(given)) {
      if (!key.automatic.empty()) return;
      throw UserError(given.place, "{}: auto is not supported here; give a value ({})", path, key.option.documentation);
    }
    if (rule)
      run_.automatic[path] = flow_text(given);
    else
      key.field.set(run_, typed_value(given, key));
    list(path);
  }

  // A number that may be left to be derived.
  Given given(const std::string& path) const {
    const Node* node = find(tree_, path);
    const Place& place =
        node == nullptr || node->tree == 0 ? tree_.place : node->place;  // no one wrote the defaults wrongly
    if (node == nullptr || is_auto(*node)) return {{}, place};
    return {std::get<std::int64_t>(typed_option(*node, find_key(path)->option, path)), place};
  }

  // Lists the value of `path`, whose origin is its place in the config, or the rule that derived it.
  void list(const std::string& path, const std::string& derived_from = "") {
    const Node* node = find(tree_, path);
    run_.origins[path] = derived_from.empty() && node != nullptr ? node->origin : derived_from;
  }

 private:
  const Node& present(const std::string& path) const {
    if (const Node* node = find(tree_, path)) return *node;
    const Key* key = find_key(path);
    throw UserError(tree_.place, "{} must be given: {}", path,
                    key->kind.empty() ? key->option.documentation : "the name of a plugin");
  }

  void choose(const Key& key) {
    const std::string slot = key.option.name.substr(0, key.option.name.rfind('.'));
    if (key.optional && (find(tree_, key.option.name) == nullptr || present(key.option.name).text == "none"))
      return list(key.option.name, find(tree_, key.option.name) == nullptr ? "not given" : "");
    const Node& node = present(key.option.name);
    const PluginSchema schema = plugins_.find(key.kind, node.text).value();  // check_keys made sure of it
    PluginChoice choice{slot, key.kind, node.text, schema.name, {}, node.place};
    choice.capabilities = schema.capabilities;
    list(key.option.name);
    for (const OptionSpec& spec : schema.options) {
      if (find_key(slot + "." + spec.name) != nullptr) {
        throw UserError(node.place,
                        "plugin {}/{} has an option {}, which is the engine's own key in {}; the plugin must rename it",
                        key.kind, schema.name, spec.name, slot);
      }
      choice.options.set(spec.name, option(choice, spec));
    }
    const Node* given = find(tree_, slot)->get(schema.name);
    choice.options_place = given == nullptr || given->entries.empty() ? node.place : given->entries.front().value.place;
    if (given != nullptr)
      for (const Entry& entry : given->entries) choice.given.push_back(entry.key);
    key.choice.set(run_, std::move(choice));
  }

  OptionValue option(const PluginChoice& choice, const OptionSpec& spec) {
    const std::string path = choice.slot + "." + choice.name + "." + spec.name;
    // Not find(path): a name from a manifest may have dots.
    const Node* section = find(tree_, choice.slot)->get(choice.name);
    const Node* node = section == nullptr ? nullptr : section->get(spec.name);
    OptionValue value = node == nullptr ? parse_option(spec, spec.default_text) : typed_option(*node, spec, path);
    list(path, node == nullptr ? "default of " + choice.kind + "/" + choice.name : node->origin);
    return value;
  }

  const Node& tree_;
  const PluginSource& plugins_;
  RunConfig& run_;
};

void resolve_batch(Resolver& resolver, RunConfig& run) {
  const Batch batch = solve_batch({resolver.given("train.micro_batch"), resolver.given("train.accumulation"),
                                   resolver.given("train.global_batch"), run.parallel});
  run.train.micro_batch = batch.micro_batch;
  run.train.accumulation = batch.accumulation;
  run.train.global_batch = batch.global_batch;
  const auto list = [&](const char* path, const std::string& origin) {
    if (!origin.empty()) resolver.list(path, origin);
  };
  list("train.micro_batch", batch.micro_batch_origin);
  list("train.accumulation", batch.accumulation_origin);
  list("train.global_batch", batch.global_batch_origin);
}

void resolve_parallel(Resolver& resolver, const Node& tree, const World& world, RunConfig& run) {
  static const std::vector<std::string> cuts{"flops", "measured", "parameters", "layers"};
  const bool names = run.cut.starts_with("names:") && run.cut.size() > 6;
  if (!run.cut.empty() && !names && std::ranges::find(cuts, run.cut) == cuts.end())
    throw UserError(find(tree, "parallel.cut")->place,
                    "parallel.cut is {}; it must be auto, flops, measured, parameters, layers or names:PATTERN",
                    shown(run.cut));
  std::map<Axis, Given> given;
  for (const Axis axis : axes) given[axis] = resolver.given(key_of(axis));
  run.parallel = solve_parallel(world.size, world.origin, given);
  resolver.list(key_of(Axis::Data), given[Axis::Data].value ? "" : run.parallel.text);
}

void check_data(const Node& tree, const RunConfig& run) {
  if (run.data.path.empty())
    throw UserError(find(tree, "data.path")->place, "data.path is empty; give the path of a token file");
}

// The documents of `section`, by default data's. Lists the keys that samples depend on.
std::optional<std::int64_t> document_end_of(const std::string& section, Resolver& resolver, const Node& tree) {
  const std::string path = section + ".documents";
  const Node* given = find(tree, path);
  const bool own = given != nullptr && !is_auto(*given);
  if (!own) given = find(tree, "data.documents");
  const auto documents = std::get<std::string>(typed_option(*given, find_key(path)->option, path));
  resolver.list(path, own ? "" : "data.documents");
  if (documents == "packed") return {};
  const std::string of_end = section + ".document_end";
  Given end = resolver.given(of_end);
  const bool own_end = end.value.has_value();
  if (!own_end) end = resolver.given("data.document_end");
  if (!end.value)
    throw UserError(given->place,
                    "{}: separate, and {} is not given: documents are separated by their end token; set {} to its id, "
                    "or {}: packed",
                    path, of_end, of_end, path);
  resolver.list(of_end, own_end ? "" : "data.document_end");
  return end.value;
}

void resolve_validation(Resolver& resolver, const Node& tree, RunConfig& run) {
  ValidationConfig& validation = run.validation;
  if (!validation.data.path.empty() && validation.samples == 0) resolver.list("validation.samples");
  if (!validation.data.path.empty()) validation.data.document_end = document_end_of("validation", resolver, tree);
}

// The keys that a choice of homes would set and that the config sets itself.
std::vector<std::string> given_of_offload(const Node& tree) {
  std::vector<std::string> given;
  for (const char* const key : {"offload.parameters.plugin", "offload.optimizer.plugin", "offload.activations.plugin",
                                "activations.checkpoint", "scheduler.plugin"})
    if (const Node* const node = find(tree, key); node != nullptr && node->tree > 0) given.emplace_back(key);
  return given;
}

void check_automatic_offload(const Node& tree, const RunConfig& run) {
  if (run.offload.automatic && !run.offload.host && !run.offload.disk)
    throw UserError(find(tree, "offload.automatic")->place,
                    "offload is automatic, and offload.host and offload.disk are none: there is no tier to choose; set "
                    "one of them");
}

void check_offload(const Node& tree, RunConfig& run) {
  OffloadConfig& offload = run.offload;
  offload.given = given_of_offload(tree);
  using Home = const std::optional<PluginChoice>*;
  for (const auto& [name, ratio, of, home] :
       {std::tuple("parameters", offload.parameters_ratio, "parameters", Home(&offload.parameters)),
        std::tuple("optimizer", offload.optimizer_ratio, "optimizer", Home(&offload.optimizer)),
        std::tuple("gradients", offload.gradients_ratio, "optimizer", Home(&offload.optimizer)),
        std::tuple("activations", offload.activations_ratio, "activations", Home(&offload.activations))}) {
    const std::string ratio_key = "offload." + std::string(name) + "_ratio", key = "offload." + std::string(of);
    const Node& given = *find(tree, ratio_key);
    if (ratio != 1.0 && !*home)
      throw UserError(given.place, "{} is {}, which has no effect: {} is none; set {}, or leave the ratio out",
                      ratio_key, given.text, key, key);
  }
}

// Where the config sets a key; no place if only the defaults do.
Place place_of(const Node& tree, const std::string& key) {
  const Node* const node = find(tree, key);
  return node == nullptr || node->tree == 0 ? Place() : node->place;
}

}  // namespace

bool PluginChoice::can(Capability capability) const {
  return std::ranges::find(capabilities, capability) != capabilities.end();
}

bool RecomputedLayers::covers(std::int64_t layer) const {
  return all || std::binary_search(layers.begin(), layers.end(), layer);
}

std::vector<const PluginChoice*> OffloadConfig::homes() const {
  std::vector<const PluginChoice*> named;
  for (const auto* const home : {&optimizer, &parameters, &activations})
    if (home->has_value()) named.push_back(&**home);
  return named;
}

std::vector<const PluginChoice*> RunConfig::plugins() const {
  std::vector<const PluginChoice*> chosen{&device,    &communicator.plugin, &model.plugin, &partitioner,
                                          &precision, &scheduler,           &optimizer,    &learning_rate.plugin};
  for (const PluginChoice* const home : offload.homes()) chosen.push_back(home);
  if (!data.path.empty()) chosen.push_back(&data.plugin);
  if (!validation.data.path.empty()) chosen.push_back(&validation.data.plugin);
  return chosen;
}

std::vector<Node> read_trees(const std::string& file, const std::vector<std::string>& settings) {
  return {read_defaults(), read_file(file), read_settings(settings)};
}

std::string plugin_path(const std::vector<Node>& trees) {
  std::string path;
  for (const Node& tree : trees) {
    const Node* node = tree.get("plugin_path");
    if (node != nullptr)
      path = std::get<std::string>(typed_option(*node, find_key("plugin_path")->option, "plugin_path"));
  }
  return path;
}

RunConfig resolve(std::vector<Node> trees, const World& world, const PluginSource& plugins, DataSection data) {
  strata_check(world.size >= 1, "a world has at least one rank");
  Node tree = combine(std::move(trees), plugins);
  settle_automatic(tree, plugins, world.on_one_host());
  validate_as_trained(tree, plugins);
  check_keys(tree, plugins);

  RunConfig run;
  run.world_size = world.size;
  if (world.size > 1 && world.one_host == false) run.several_hosts = world.origin;
  Resolver resolver(tree, plugins, run);
  const bool with_data = data == DataSection::Required || find(tree, "data.path") != nullptr;
  const Node* validated = find(tree, "validation.path");
  const bool with_validation = validated != nullptr && !validated->text.empty();
  for (const Key& key : keys()) {
    const bool wanted = key.option.name.starts_with("data.")     ? with_data
                        : key.option.name == "validation.plugin" ? with_validation
                                                                 : true;
    if (wanted) resolver.read(key);
  }
  if (with_data) {
    check_data(tree, run);
    run.data.document_end = document_end_of("data", resolver, tree);
  }
  check_offload(tree, run);
  resolve_validation(resolver, tree, run);
  const bool by_default = find(tree, "learning_rate.plugin")->tree == 0;
  run.learning_rate.place = by_default ? tree.place : run.learning_rate.plugin.options_place;
  resolve_parallel(resolver, tree, world, run);
  resolve_batch(resolver, run);
  check_automatic_offload(tree, run);
  check_conflicts({run}, [&](std::string_view key) { return place_of(tree, std::string(key)); });
  check_idle_keys(tree, run);
  if (const Node* rules = find(tree, "parameters")) {
    run.parameters = read_parameter_rules(*rules, run.learning_rate, run.optimizer);
    if (rules->kind == NodeKind::Sequence) run.parameters_text = flow_text(*rules);
    resolver.list("parameters");
  }
  // The model and the scheduler tell when they are there, and the device when it is asked.
  for (const char* const key : {"parallel.chunks", "parallel.cut", "memory_budget", "device_budget"})
    if (!run.origins.contains(key)) resolver.list(key);
  return run;
}

}  // namespace strata::config
