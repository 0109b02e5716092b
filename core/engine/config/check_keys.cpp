#include <algorithm>
#include <charconv>
#include <filesystem>

#include "config/keys.hpp"
#include "config/merge_trees.hpp"
#include "text/nearest.hpp"

namespace strata::config {
namespace {

[[noreturn]] void unknown(const Entry& entry, const std::string& path, const std::string& what,
                          const std::vector<std::string>& known) {
  throw UserError(entry.place, "{} {}; {}", what, shown(path), text::suggestion(entry.key, known));
}

void check_value(const Node& value, const OptionSpec& spec, const std::string& path) {
  const std::vector<std::string>& choices = spec.choices;
  const bool free_text = spec.type == "text" && choices.empty();
  const bool meant = free_text || std::find(choices.begin(), choices.end(), "auto") != choices.end();
  if (is_auto(value) && !meant) throw UserError(value.place, "{}: auto is not supported here; give a value", path);
  typed_option(value, spec, path);
}

// The section of one plugin in its slot.
void check_options(const Entry& entry, const Node& slot_section, const PluginSlot& slot, const PluginSource& plugins) {
  const std::string path = slot.path + "." + entry.key;
  const bool could_be_section = entry.value.kind == NodeKind::Map || entry.value.kind == NodeKind::Null;
  // The chosen plugin first: where the config gives it by path, its name leads nowhere.
  const Node* chosen = slot_section.get("plugin");
  std::optional<PluginSchema> schema;
  if (chosen != nullptr && chosen->text != "none") schema = plugins.find(slot.kind, chosen->text);
  if (!schema || schema->name != entry.key) schema = plugins.find(slot.kind, entry.key);
  if (!schema || !could_be_section) {
    std::vector<std::string> known = known_children(slot.path);
    for (const std::string& name : plugins.names(slot.kind)) known.push_back(name);
    unknown(entry, path, "unknown key", known);
  }
  for (const Entry& option : entry.value.entries) {
    const auto same_name = [&](const OptionSpec& spec) { return spec.name == option.key; };
    const auto spec = std::find_if(schema->options.begin(), schema->options.end(), same_name);
    const std::string full = path + "." + option.key;
    if (spec == schema->options.end()) {
      std::vector<std::string> known;
      for (const OptionSpec& one : schema->options) known.push_back(one.name);
      for (const std::string& key : known_children(slot.path))
        known.push_back(key);  // seq_lne may stand for an engine's key
      unknown(option, full, "unknown option", known);
    }
    try {
      check_value(option.value, *spec, full);
    } catch (const UserError& error) {
      if (slot.kind != "model" || spec->name != "preset" || option.value.kind != NodeKind::Scalar) throw;
      throw UserError("{}; there is no folder of weights (model.init) of that name either", error.what());
    }
  }
}

// For a number where a plugin's name is expected, as in `learning_rate: 1e-3`: the key of the section that takes one.
std::string number_key(const PluginSlot& slot, const Node& node) {
  double number = 0.0;
  const char* const end = node.text.data() + node.text.size();
  if (std::from_chars(node.text.data(), end, number).ptr != end) return "";
  for (const Key& key : keys())
    if (key.option.type == "number" && key.option.name.starts_with(slot.path + "."))
      return "; a number is set by " + key.option.name + ": " + node.text;
  return "";
}

void check_section(const Node& node, const std::string& path, const PluginSource& plugins) {
  if (node.kind == NodeKind::Null) return;
  if (node.kind != NodeKind::Map) {
    const std::string found = node.kind == NodeKind::Scalar ? shown(node.text) : "a list";
    throw UserError(node.place, "{} is a section, `{}: {{key: value}}`; {} was found", path, path, found);
  }
  const PluginSlot* slot = plugin_slot(path);
  if (slot != nullptr) check_plugin(node, *slot, plugins);
  const std::vector<std::string> known = known_children(path);
  for (const Entry& entry : node.entries) {
    const std::string full = path.empty() ? entry.key : path + "." + entry.key;
    const bool listed = std::find(known.begin(), known.end(), entry.key) != known.end();
    if (listed && find_key(full) != nullptr) continue;
    if (listed) {
      check_section(entry.value, full, plugins);
    } else if (slot != nullptr) {
      check_options(entry, node, *slot, plugins);
    } else {
      unknown(entry, full, "unknown key", known);
    }
  }
}

}  // namespace

void check_plugin(const Node& section, const PluginSlot& slot, const PluginSource& plugins) {
  const Node* node = section.get("plugin");
  if (node == nullptr) return;
  const std::string path = slot.path + ".plugin";
  if (node->kind != NodeKind::Scalar || node->text.empty())
    throw UserError(node->place, "{}: the name of a plugin, or the absolute path of one, is expected", path);
  if (slot.optional && node->text == "none") return;
  if (node->text.find('/') != std::string::npos && !std::filesystem::path(node->text).is_absolute()) {
    throw UserError(node->place, "{}: {} is a relative path; give a name or an absolute path", path, shown(node->text));
  }
  std::optional<PluginSchema> found;
  try {
    found = plugins.find(slot.kind, node->text);
  } catch (const UserError& error) {
    throw UserError(node->place, "{}: {}", path, error.what());
  }
  if (!found)
    throw UserError(node->place, "{}: {}{}", path, plugins.missing(slot.kind, node->text), number_key(slot, *node));
}

void check_keys(const Node& tree, const PluginSource& plugins) {
  check_section(tree, "", plugins);
}

}  // namespace strata::config
