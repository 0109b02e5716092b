// The engine's own keys. Each is described once: as a row of a list in run_config.hpp, beside the field that it fills,
// or in keys.cpp if special code resolves its section. A row determines the type and range of a value, the default, the
// field's value, `strata config show`, `explain` and configs/REFERENCE.md, the comparison between ranks before they
// start, and the changes that a resumed run may make.
#pragma once
#include <strata/mesh.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "config/schema.hpp"

namespace strata::config {

struct RunConfig;
struct PluginChoice;

// Effect of a key on a run. A resumed run must keep Samples, logs a changed Numbers and may change the others.
enum class Affects {
  Nothing,  // logs, waiting, measuring: no number of the training
  Files,    // which files are read and written
  Numbers,  // losses and weights
  Samples,  // samples and random numbers of a step, and so losses and weights
};

// Comparison of a key between ranks before they start. A key that is not compared by its value is per host: a path that
// may differ between hosts.
enum class Compared {
  Value,
  Content,  // content of the path: tokens, weights
  Use,      // given or not; the path is free, because only rank 0 writes there
};

struct Effect {
  constexpr Effect(Affects what, Compared part = Compared::Value) : affects(what), compared(part) {}
  Affects affects;
  Compared compared;
  constexpr bool per_host() const { return compared != Compared::Value; }
};
constexpr Effect same_content(Affects affects) {
  return {affects, Compared::Content};
}
constexpr Effect written_by_rank_0(Affects affects) {
  return {affects, Compared::Use};
}

// The default of a row: a text as a YAML file would have it, or one of the two below.
struct Default {
  constexpr Default(const char* as_in_yaml) : text(as_in_yaml) {}
  constexpr Default(const char* as_in_yaml, const char* meaning, bool none)
      : text(as_in_yaml), automatic(meaning), required(none) {}
  const char* text;
  const char* automatic = "";
  bool required = false;
};
inline constexpr Default required{"", "", true};
// Returns a default of `auto`, with its meaning.
constexpr Default automatic(const char* meaning) {
  return {"auto", meaning, false};
}

// Access to the field of RunConfig that a key fills. Without `set`, special code reads the key.
struct KeyField {
  void (*set)(RunConfig&, const OptionValue&) = nullptr;
  OptionValue (*get)(const RunConfig&) = nullptr;
};
struct ChoiceField {
  void (*set)(RunConfig&, PluginChoice) = nullptr;
  const PluginChoice* (*get)(const RunConfig&) = nullptr;  // returns null for none
};

// `option.name` is the whole dotted path. Beside the types of <strata/options.hpp> there are:
//   plugin  a plugin of `kind`. Default: see configs/defaults.yaml, as the core names no plugin
//   layers  none, all, or a list of layer numbers
//   parameter_rules  a list of sections, see ParameterRule in run_config.hpp
//   variants  a list of texts, see core/tools/compare/variants.hpp
//   rule    what `auto` means: a list of names, the first usable is taken, or a section of names by device
struct Key {
  OptionSpec option;
  bool required = false;
  std::string automatic;  // meaning of `auto`, which is then the default; empty: `auto` is not allowed
  Effect effect = Affects::Numbers;
  std::string kind = {};               // of type plugin
  bool optional = false;               // for type plugin: `none` is allowed
  Affects options = Affects::Numbers;  // for type plugin: effect of the plugin's options
  KeyField field = {};
  ChoiceField choice = {};  // for type plugin
};

// Makes a key. `limits` as in <strata/options.hpp>. Throws Bug for a malformed row.
Key make_key(std::string_view path, std::string_view type, Default value, std::string_view limits,
             std::string_view unit, Effect effect, std::string_view documentation, KeyField field = {});

// Makes the key SLOT.plugin. The plugin's options have the key's effect. Key::options may be less if resuming detects a
// change otherwise, as for a model, whose parameters it compares.
Key plugin_key(const std::string& slot, const std::string& kind, Effect effect, const std::string& documentation,
               ChoiceField choice, bool optional = false);

// Returns the key with the size of an axis: "parallel.tensor".
std::string key_of(Axis axis);

// A field of RunConfig that has an option's type.
#define STRATA_KEY_FIELD(type, member)                                                                         \
  KeyField {                                                                                                   \
    [](RunConfig& run, const OptionValue& value) { run.member = std::get<STRATA_OPTION_TYPE_##type>(value); }, \
        [](const RunConfig& run) { return OptionValue(STRATA_OPTION_TYPE_##type(run.member)); }                \
  }

const std::vector<Key>& keys();
const Key* find_key(std::string_view path);  // null if the engine has no such key
// Returns the effect of an engine's key or a plugin's option.
Effect effect_of(std::string_view path);

// A section that names a plugin: `partitioner: {plugin: NAME, NAME: {options}}`.
struct PluginSlot {
  std::string path;
  std::string kind;
  bool optional = false;  // `plugin: none` is allowed
};

// Returns the slots in the order in which `auto` is resolved: first the device, on which others depend.
const std::vector<PluginSlot>& plugin_slots();
const PluginSlot* plugin_slot(std::string_view path);

// Returns the keys and sections of the engine directly below `path` ("" is the top).
std::vector<std::string> known_children(std::string_view path);

}  // namespace strata::config
