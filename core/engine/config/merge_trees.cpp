#include "config/merge_trees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace strata::config {
namespace {

void stamp(Node& node, int tree) {
  node.tree = tree;
  for (Node& item : node.items) stamp(item, tree);
  for (Entry& entry : node.entries) stamp(entry.value, tree);
}

// The section of this name in `parent`; a new one, where `like` stands, when there is none.
Node& section_in(Node& parent, const std::string& name, const Node& like) {
  if (const Node* present = parent.get(name); present == nullptr || present->kind != NodeKind::Map) {
    Node section = empty_section(like.place, like.origin);
    section.tree = like.tree;
    parent.put(name, like.place, std::move(section));
  }
  return *parent.get(name);
}

// Keys that have another name now.
void refuse_former_keys(const Node& source) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> former{{
      {"data.format", "data.plugin"},
      {"validation.format", "validation.plugin"},
      {"learning_rate.schedule", "learning_rate.plugin"},
  }};
  for (const auto& [key, now] : former)
    if (const Node* node = find(source, key))
      throw UserError(node->place, "{} was renamed {}; `strata plugins list` prints its values", key, now);
}

// `partitioner: NAME` to `partitioner: {plugin: NAME}`, `offload: auto` to `offload: {automatic: true}`.
void expand_names(Node& tree) {
  if (Node* const offload = tree.get("offload"); offload != nullptr && is_auto(*offload)) {
    Node automatic = *offload;
    automatic.text = "true";
    *offload = empty_section(automatic.place, automatic.origin);
    offload->tree = automatic.tree;
    offload->put("automatic", automatic.place, std::move(automatic));
  }
  for (const PluginSlot& slot : plugin_slots()) {
    Node* node = find(tree, slot.path);
    if (node == nullptr || node->kind != NodeKind::Scalar) continue;
    Node section = empty_section(node->place, node->origin);
    section.tree = node->tree;
    section.put("plugin", node->place, *node);
    *node = std::move(section);
  }
}

bool is_option(const Entry& entry, const std::string& plugin, const PluginSlot& slot, const PluginSource& plugins) {
  if (find_key(slot.path + "." + entry.key) != nullptr) return false;
  if (entry.value.kind == NodeKind::Map) return false;
  // A plugin's name with nothing after it is an empty section.
  return entry.value.kind != NodeKind::Null || (entry.key != plugin && !plugins.find(slot.kind, entry.key));
}

// Moves options next to `plugin:` into the section of the plugin.
void gather_options(Node& section, const PluginSlot& slot, const PluginSource& plugins) {
  const Node* plugin = section.get("plugin");
  if (plugin == nullptr || plugin->kind != NodeKind::Scalar || is_auto(*plugin)) return;
  if (slot.optional && plugin->text == "none") return;
  const std::string name = plugin_name(slot, plugin->text, plugins);
  std::vector<Entry> options;
  for (const Entry& entry : section.entries) {
    if (is_option(entry, name, slot, plugins)) options.push_back(entry);
  }
  if (options.empty()) return;
  for (const Entry& option : options) section.remove(option.key);
  Node& own = section_in(section, name, options.front().value);
  for (Entry& option : options) {
    const Node* present = own.get(option.key);
    if (present != nullptr && present->tree == option.value.tree) {
      throw UserError(option.place, "{}.{} is given twice, next to `plugin` and under {} ({}); keep one", slot.path,
                      option.key, name, to_string(present->place));
    }
    if (present == nullptr || present->tree < option.value.tree)
      own.put(option.key, option.place, std::move(option.value));
  }
}

void gather_all_options(Node& tree, const PluginSource& plugins) {
  for (const PluginSlot& slot : plugin_slots()) {
    Node* section = find(tree, slot.path);
    if (section != nullptr && section->kind == NodeKind::Map) gather_options(*section, slot, plugins);
  }
}

std::string obstacle_to(const PluginSlot& slot, const std::string& plugin, const PluginSource& plugins,
                        bool on_one_host) {
  const std::optional<PluginSchema> found = plugins.find(slot.kind, plugin);
  if (!found) return "there is no such plugin";
  if (found->can(Capability::OneHost) && !on_one_host) return "it connects ranks of one host only";
  return plugins.obstacle(slot.kind, plugin);
}

// The first of a list that is there and usable.
std::string first_usable(const PluginSlot& slot, const Node& rule, const Place& place, const PluginSource& plugins,
                         bool on_one_host) {
  std::string tried;
  for (const Node& candidate : rule.items) {
    const std::string obstacle = obstacle_to(slot, candidate.text, plugins, on_one_host);
    if (obstacle.empty()) return candidate.text;
    tried += (tried.empty() ? "" : "; ") + candidate.text + ": " + obstacle;
  }
  throw UserError(place, "{}: auto finds no usable plugin ({})", slot.path, tried);
}

std::string chosen_by_rule(const Node& tree, const PluginSlot& slot, const Place& place, const PluginSource& plugins,
                           bool on_one_host) {
  const std::string rule_path = "automatic." + slot.path;
  const Node* rule = find(tree, rule_path);
  if (rule == nullptr || (rule->kind != NodeKind::Sequence && rule->kind != NodeKind::Map)) {
    throw UserError(place, fmt::format("{}: auto is not supported here; choose a plugin ({})", slot.path,
                                       fmt::join(plugins.names(slot.kind), ", ")));
  }
  if (rule->kind == NodeKind::Sequence) return first_usable(slot, *rule, place, plugins, on_one_host);
  const PluginSlot& device_slot = *plugin_slot("device");
  const Node* device = find(tree, "device.plugin");
  if (device == nullptr) throw UserError(place, "{}: auto depends on the device; set device", slot.path);
  check_plugin(*find(tree, device_slot.path), device_slot, plugins);
  const std::string device_name = plugin_name(device_slot, device->text, plugins);
  const Node* entry = rule->get(device_name);
  if (entry != nullptr && entry->kind == NodeKind::Sequence)
    return first_usable(slot, *entry, place, plugins, on_one_host);
  if (entry == nullptr || entry->kind != NodeKind::Scalar) {
    throw UserError(place, "{}: auto has no rule for device {}; choose a plugin, or add one to {} ({})", slot.path,
                    shown(device_name), rule_path, rule->origin);
  }
  if (!plugins.find(slot.kind, entry->text)) {  // whoever chose the device chose this, not the file with the rule
    throw UserError(device->tree == 0 ? place : device->place, "device: {} uses {} {} ({}), and {}", shown(device_name),
                    slot.path, shown(entry->text), rule_path, plugins.missing(slot.kind, entry->text));
  }
  return entry->text;
}

// Homes that may be chosen are there only where offload is automatic.
void drop_open_homes(Node& tree) {
  const Node* const automatic = find(tree, "offload.automatic");
  if (automatic != nullptr && automatic->text == "true") return;
  Node* const host = find(tree, "offload.host.plugin");
  if (host == nullptr || !is_auto(*host)) return;
  host->text = "none";
  host->origin = "offload is not automatic";
}

std::optional<PluginSchema> schema_of(const PluginSlot& slot, const std::string& plugin, const PluginSource& plugins) {
  try {
    return plugins.find(slot.kind, plugin);
  } catch (const UserError&) {
    return std::nullopt;  // check_plugin reports it with the place
  }
}

}  // namespace

std::string plugin_name(const PluginSlot& slot, const std::string& plugin, const PluginSource& plugins) {
  const std::optional<PluginSchema> found = schema_of(slot, plugin, plugins);
  return found ? found->name : plugin;
}

Node read_settings(const std::vector<std::string>& settings) {
  Node tree = empty_section({"--set"}, "--set");
  for (const std::string& setting : settings) {
    Node one = parse_setting(setting);
    expand_names(one);  // so that `partitioner=NAME` and `partitioner.option=1` can follow each other
    merge(tree, one);
  }
  return tree;
}

void validate_as_trained(Node& tree, const PluginSource& plugins) {
  Node* validation = find(tree, "validation");
  const Node* plugin = find(tree, "data.plugin");
  if (validation == nullptr || validation->kind != NodeKind::Map || plugin == nullptr) return;
  if (validation->get("plugin") != nullptr) return;
  Node same = *plugin;
  same.origin = "data.plugin";
  validation->put("plugin", same.place, std::move(same));
  const PluginSlot& slot = *plugin_slot("validation");
  gather_options(*validation, slot, plugins);
  const std::string name = plugin_name(slot, plugin->text, plugins);
  const Node* trained = find(tree, "data")->get(name);
  if (trained == nullptr || trained->kind != NodeKind::Map) return;
  Node& own = section_in(*validation, name, *trained);
  const std::optional<PluginSchema> schema = schema_of(slot, plugin->text, plugins);
  const auto names_file = [&](const std::string& option) {
    return schema && std::ranges::any_of(schema->options, [&](const OptionSpec& spec) {
             return spec.name == option && spec.unit == "file";
           });
  };
  for (const Entry& option : trained->entries)
    if (own.get(option.key) == nullptr && !names_file(option.key)) own.put(option.key, option.place, option.value);
}

Node combine(std::vector<Node> trees, const PluginSource& plugins) {
  const Place config{trees.size() > 1 ? trees[1].place.file : trees.empty() ? "" : trees[0].place.file};
  Node tree = empty_section();
  for (std::size_t index = 0; index < trees.size(); ++index) {
    stamp(trees[index], static_cast<int>(index));
    expand_names(trees[index]);
    refuse_former_keys(trees[index]);
    merge(tree, trees[index]);
    gather_all_options(tree, plugins);
  }
  tree.place = config;
  return tree;
}

void settle_automatic(Node& tree, const PluginSource& plugins, bool on_one_host) {
  drop_open_homes(tree);
  for (const PluginSlot& slot : plugin_slots()) {
    Node* plugin = find(tree, slot.path + ".plugin");
    if (plugin == nullptr || !is_auto(*plugin)) continue;
    const Place& place = plugin->tree == 0 ? tree.place : plugin->place;  // no one wrote the defaults wrongly
    plugin->text = chosen_by_rule(tree, slot, place, plugins, on_one_host);
    plugin->origin = "auto (" + plugin->origin + "), by automatic." + slot.path;
  }
  gather_all_options(tree, plugins);
}

}  // namespace strata::config
