// `strata config`.
#pragma once
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "text/table.hpp"

namespace strata::cli {

// `strata config show FILE [--set a.b=c ...] [--nproc N] [--lr] [--format table|markdown|csv|json]`
struct ConfigShow {
  std::string file;
  std::vector<std::string> settings;
  config::World world;
  std::string format = "table";
  bool learning_rate = false;  // --lr: print the rate of every step instead of the config's values
};

// Resolves layers (config/run_config.hpp) with the plugins on their plugin_path.
using ResolveConfig =
    std::function<config::RunConfig(const std::vector<config::Node>& layers, const config::World& world)>;

// Prints every value of the resolved config and its origin. Throws UserError, EnvironmentError.
void config_show(const ConfigShow& arguments, const ResolveConfig& resolve, std::ostream& output);

// Writes a config with its --set values as `format` ("yaml", "toml", "json"; empty: from the name of `file`, else yaml)
// to `file`, or to `output` if it is empty. A ds_config is translated to Strata's keys, and `log` gets one line per
// key; "auto" values that depend on the model's width are written if the settings name a model. Defaults are not
// written. Throws UserError, EnvironmentError.
void config_convert(const ConfigShow& arguments, std::shared_ptr<plugins::PluginRegistry> registry,
                    const std::string& format, const std::string& file, std::ostream& output, std::ostream& log);

// Prints one key of the engine or option of a plugin: type, default, range, effect, example; for a section, a table of
// its keys. `path` is as in a config; an option may stand next to `plugin`, as in optimizer.betas. Throws UserError
// with the nearest key for an unknown path.
void config_explain(plugins::PluginRegistry& registry, const std::string& path, std::ostream& output);

// `strata config conflicts [FILE] [--set a.b=c ...] [--nproc N] [--format table|markdown|csv|json]`
struct ConfigConflicts {
  std::string file;  // empty: no config
  std::vector<std::string> settings;
  config::World world;
  std::string format = "table";
};

// Prints the features that cannot be combined, with the reason; with a config, the rows of its training's features, and
// what was found. Throws UserError for a config that has both features of a row.
void config_conflicts(const ConfigConflicts& arguments, std::ostream& output);
// Prints all rows. [any rank]
void print_conflicts(text::TableFormat format, std::ostream& output);

// Prints configs/REFERENCE.md: one section per config section, then one per plugin.
void config_reference(plugins::PluginRegistry& registry, std::ostream& output);

}  // namespace strata::cli
