// The description of a key of a config, from those of the engine's keys and the manifests of plugins.
#include <fmt/format.h>
#include <strata/capability.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <ostream>
#include <set>
#include <utility>

#include "config/conflicts.hpp"
#include "config/defaults.hpp"
#include "config/keys.hpp"
#include "config/tree.hpp"
#include "text/nearest.hpp"
#include "text/table.hpp"
#include "tools/config/config.hpp"
#include "tools/plugins/plugins.hpp"

namespace strata::cli {
namespace {

using config::Affects;
using config::Compared;

// A key of the engine or an option of a plugin.
struct Setting {
  OptionSpec option;  // its name: the whole path
  std::string automatic;
  bool required = false;
  config::Effect effect;
  std::string slot = {}, plugin = {};  // of an option: where its plugin is named, and the plugin
};

// The engine's keys, in their order, then every plugin's options.
class Settings {
 public:
  explicit Settings(plugins::PluginRegistry& registry) {
    const config::Node defaults = config::read_defaults();
    const auto plugins = usable_plugins(registry);
    for (const config::Key& key : config::keys()) {
      Setting setting{key.option, key.automatic, key.required, key.effect};
      const bool named_in_file = key.option.type == "plugin" || key.option.type == "rule";
      const config::Node* node = config::find(defaults, key.option.name);
      if (named_in_file && node == nullptr)  // `device: auto` is short for `device: {plugin: auto}`
        node = config::find(defaults, key.option.name.substr(0, key.option.name.rfind('.')));
      if (key.option.type == "plugin" && node != nullptr && node->kind != config::NodeKind::Scalar) node = nullptr;
      if (named_in_file)
        setting.option.default_text = node == nullptr ? key.option.default_text : config::flow_text(*node);
      for (const auto* plugin : plugins)
        if (to_string(plugin->manifest.kind) == key.kind) setting.option.choices.push_back(plugin->manifest.name);
      if (key.optional) setting.option.choices.emplace_back("none");
      all.push_back(std::move(setting));
    }
    for (const config::PluginSlot& slot : config::plugin_slots())
      for (const auto* plugin : plugins) {
        if (to_string(plugin->manifest.kind) != slot.kind) continue;
        for (const OptionSpec& option : plugin->manifest.options) {
          Setting setting{option, "", false, config::Affects::Numbers, slot.path, plugin->manifest.name};
          setting.option.name = slot.path + "." + plugin->manifest.name + "." + option.name;
          setting.effect = config::effect_of(setting.option.name);
          all.push_back(std::move(setting));
        }
      }
  }

  // The setting of this path; of an option next to `plugin` those of every plugin that has one.
  std::vector<const Setting*> find(const std::string& path) const {
    std::vector<const Setting*> found;
    for (const Setting& one : all)
      if (one.option.name == path || short_form(one.option.name) == path) found.push_back(&one);
    return found;
  }

  std::vector<const Setting*> below(const std::string& section) const {
    std::vector<const Setting*> found;
    for (const Setting& one : all)
      if (one.option.name.starts_with(section + ".")) found.push_back(&one);
    return found;
  }

  std::vector<Setting> all;

 private:
  // SLOT.OPTION of SLOT.PLUGIN.OPTION; empty for a key of the engine.
  static std::string short_form(const std::string& path) {
    if (config::find_key(path) != nullptr) return "";
    const std::size_t last = path.rfind('.'), plugin = path.rfind('.', last - 1);
    return path.substr(0, plugin) + path.substr(last);
  }
};

struct AffectsText {
  const char* word;
  const char* sentence;
  const char* resume;
};

const AffectsText& text_of(Affects affects) {
  static constexpr std::array<AffectsText, 4> texts{{
      {"nothing", "no result of the training", "may change"},
      {"files", "which files are read or written", "may change"},
      {"numbers", "losses and weights", "may change; the change is logged"},
      {"samples", "samples and random numbers, and thereby losses and weights", "must stay the same"},
  }};
  return texts[static_cast<std::size_t>(affects)];
}

struct ComparedText {
  const char* mark;  // behind what the key affects
  const char* sentence;
};

const ComparedText& text_of(Compared compared) {
  static constexpr std::array<ComparedText, 3> texts{{
      {"", "same value on all ranks"},
      {", per host: same content", "paths may differ between hosts; their contents must be identical"},
      {", per host: rank 0 writes", "paths may differ between hosts; set on all ranks or on none, and rank 0 writes"},
  }};
  return texts[static_cast<std::size_t>(compared)];
}

// The description as a sentence, for a key as for a plugin's option: in messages that of a key is a phrase.
std::string description_of(const Setting& setting) {
  std::string text = setting.option.documentation;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (text.back() != '.') text += '.';
  return text;
}

std::string default_of(const Setting& setting) {
  if (setting.required) return "none (required)";
  const std::string& text = setting.option.default_text;
  return text.empty() ? "\"\"" : text + (setting.automatic.empty() ? "" : ": " + setting.automatic);
}

// A value that the setting takes, other than the default where there is one to name.
std::string example_value(const OptionSpec& option, const std::string& given) {
  if (!option.choices.empty()) return option.choices.back() == "none" ? option.choices.front() : option.choices.back();
  if (option.type == "layers") return "all";
  if (option.type == "parameter_rules") return "[{match: \"*.bias\", weight_decay: 0}]";
  if (option.type == "variants") return "[\"train.accumulation=1\", \"train.accumulation=2\"]";
  if (option.type == "boolean") return given == "true" ? "false" : "true";
  if (option.type == "text") return given.empty() ? "FILE" : given;
  if (!given.empty() && given != "auto") return given;
  return option.type == "size" ? "8GB" : option.minimum.empty() ? "1" : option.minimum;
}

std::string nested(const std::string& path, const std::string& value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) return path + ": " + value;
  return path.substr(0, dot) + ": {" + nested(path.substr(dot + 1), value) + "}";
}

void explain(const Setting& setting, std::ostream& output) {
  const OptionSpec& option = setting.option;
  output << option.name << "\n  ";
  for (const char letter : cases_apart(description_of(setting), option))
    output << (letter == '\n' ? "\n  " : std::string(1, letter));
  output << "\n";
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) output << "  " << name << text << "\n";
  };
  line("type      ", option.type);
  line("default   ", default_of(setting));
  line("range     ", range_with_unit(option));
  line("affects   ", text_of(setting.effect.affects).sentence);
  line("resume    ", text_of(setting.effect.affects).resume);
  line("ranks     ", text_of(setting.effect.compared).sentence);
  const std::string value = example_value(option, option.default_text);
  line("example   ", setting.plugin.empty() ? nested(option.name, value)
                                            : nested(setting.slot, "{plugin: " + setting.plugin + ", " +
                                                                       option.name.substr(option.name.rfind('.') + 1) +
                                                                       ": " + value + "}"));
  const char* name = "conflicts ";
  for (const config::Conflict& conflict : config::conflicts())
    if (conflict.first.key == option.name || conflict.second.key == option.name)
      line(std::exchange(name, "          "),
           fmt::format("{} with {}: {}", conflict.first.name, conflict.second.name, conflict.reason));
}

// The name that follows `before.` in a path.
std::string component_after(const std::string& before, const std::string& path) {
  const std::size_t begin = before.empty() ? 0 : before.size() + 1;
  return path.substr(begin, path.find('.', begin) - begin);
}

[[noreturn]] void refuse(const Settings& settings, const std::string& path) {
  std::string known = path;  // the longest part of it that leads somewhere
  while (!known.empty() && settings.below(known).empty())
    known = known.substr(0, known.rfind('.') == std::string::npos ? 0 : known.rfind('.'));
  std::set<std::string> names;
  for (const Setting& one : settings.all)
    if (known.empty() || one.option.name.starts_with(known + "."))
      names.insert(component_after(known, one.option.name));
  const std::string wrong = component_after(known, path);
  throw UserError("unknown key {}{}{}", config::shown(path), known.empty() ? "; " : "; in " + known + ": ",
                  text::suggestion(wrong, {names.begin(), names.end()}));
}

void print_section(const std::vector<const Setting*>& settings, text::TableFormat format, std::ostream& output) {
  const bool markdown = format == text::TableFormat::Markdown;
  const auto code = [&](const std::string& text) { return markdown && !text.empty() ? "`" + text + "`" : text; };
  text::Table table{{{"key"}, {"type"}, {"default"}, {"range"}, {"affects"}, {"description"}}, {}};
  for (const Setting* one : settings) {
    const OptionSpec& option = one->option;
    const std::string affects = text_of(one->effect.affects).word;
    std::string what = description_of(*one) + (one->automatic.empty() ? "" : " auto: " + one->automatic + ".");
    if (markdown) what = cases_apart(std::move(what), option);
    table.rows.push_back({code(option.name), option.type,
                          one->required ? "required" : code(option.default_text.empty() ? "\"\"" : option.default_text),
                          option.type == "plugin" ? "" : range_with_unit(option),
                          affects + text_of(one->effect.compared).mark, what});
  }
  text::print(table, format, output);
}

// configs/REFERENCE.md up to the first section.
constexpr const char* preamble = R"(# Config reference

Generated by `strata config reference`: the engine's keys by section, then the options of each plugin.
`strata config explain KEY` prints one entry with an example. An option is written next to `plugin` in the section that
selects the plugin:

```yaml
partitioner: {plugin: zero3, prefetch_layers: 2}
```

Descriptions give the meaning of special values as `VALUE: meaning`, for example `0: no clipping`.

**Types** other than numbers, texts and choices:

| type            | value                                                                 |
| --------------- | --------------------------------------------------------------------- |
| size            | bytes, with or without a unit: 512KiB, 8GB                            |
| plugin          | name of a plugin, or the absolute path of its library                 |
| layers          | none, all, or a list of layer numbers                                 |
| parameter_rules | list of rules: [{match: "*.bias", weight_decay: 0}]                   |
| variants        | list of texts: ["train.accumulation=1", "train.accumulation=2"]       |
| rule            | names of plugins in order of preference; may be given for each device |

**Affects**: what a change of the value alters, and whether it may change when a run is resumed.

| affects | a change alters                                            | on resume                        |
| ------- | ---------------------------------------------------------- | -------------------------------- |
| samples | samples and random numbers, and thereby losses and weights | must stay the same               |
| numbers | losses and weights                                         | may change; the change is logged |
| files   | which files are read or written                            | may change                       |
| nothing | no result of the training                                  | may change                       |

**Ranks**: a value must be the same on all ranks, except for keys marked *per host*, whose paths may differ between
hosts. With *same content*, the ranks verify before the first step that the paths hold the same data. With
*rank 0 writes*, only rank 0 uses the path, and the key must be set on all ranks or on none.

**Equivalence** of a plugin: how closely its results match those of the simplest choice.

| equivalence     | results                        |
| --------------- | ------------------------------ |
| bitwise         | the same bits                  |
| reassociation   | the same sums in another order |
| tolerance(B)    | losses within B, relative      |
| simulated(NAME) | those of NAME                  |

**Capabilities** of a plugin: properties that the engine checks before it runs a combination of plugins.

)";

void print_capabilities(std::ostream& output) {
  text::Table table{{{"capability"}, {"kind"}, {"property"}}, {}};
  for (const CapabilityInfo& info : capabilities)
    table.rows.push_back({std::string(info.name), std::string(to_string(info.kind)), std::string(info.meaning)});
  text::print(table, text::TableFormat::Markdown, output);
}

}  // namespace

void config_explain(plugins::PluginRegistry& registry, const std::string& path, std::ostream& output) {
  const Settings settings(registry);
  const std::vector<const Setting*> found = settings.find(path);
  for (const Setting* one : found) {
    if (one != found.front()) output << "\n";
    explain(*one, output);
  }
  if (!found.empty()) return;
  const std::vector<const Setting*> below = settings.below(path);
  if (below.empty()) refuse(settings, path);
  print_section(below, text::TableFormat::Text, output);
}

void config_reference(plugins::PluginRegistry& registry, std::ostream& output) {
  output << preamble;
  print_capabilities(output);
  const Settings settings(registry);
  std::vector<std::string> sections;
  for (const std::string& name : config::known_children(""))
    if (config::find_key(name) == nullptr) sections.push_back(name);
  for (const std::string& section : sections) {
    std::vector<const Setting*> keys;
    for (const Setting* one : settings.below(section))
      if (config::find_key(one->option.name) != nullptr) keys.push_back(one);
    output << "\n## " << section << "\n\n";
    print_section(keys, text::TableFormat::Markdown, output);
  }
  output << "\n## Top-level keys\n\n";
  std::vector<const Setting*> alone;
  for (const Setting& one : settings.all)
    if (one.option.name.find('.') == std::string::npos) alone.push_back(&one);
  print_section(alone, text::TableFormat::Markdown, output);
  output << "\n## Features that cannot be combined\n\n"
         << "`strata config conflicts FILE` prints the rows that concern a config. Plugins also refuse values of their "
            "own options that do not fit a run, such as a number of chunks.\n\n";
  print_conflicts(text::TableFormat::Markdown, output);
  print_options(usable_plugins(registry), output);
}

}  // namespace strata::cli
