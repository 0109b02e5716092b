#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::cli {

// `strata config show FILE [--set a.b=c ...] [--nproc N] [--lr] [--format table|markdown|csv|json]`
struct ConfigShow {
  std::string file;
  std::vector<std::string> settings;
  config::World world;
  std::string format = "table";
  bool learning_rate = false;  // --lr: the rate of every step instead of the config's values
};

// Resolves layers (config/run_config.hpp) with the plugins that their plugin_path leads to.
using ResolveConfig =
    std::function<config::RunConfig(const std::vector<config::Node>& layers, const config::World& world)>;

// Prints every value of the resolved config and where it comes from. Throws UserError, EnvironmentError.
void config_show(const ConfigShow& arguments, const ResolveConfig& resolve, std::ostream& output);

// Writes a config with its --set values as `format` ("yaml", "toml", "json"; empty: as the name of `file` says, or
// yaml), to `file` or, where that is empty, to `output`: a ds_config as what it means in our keys, with what each key
// did in `log`. Defaults that are not the file's stay out. Throws UserError, EnvironmentError.
void config_convert(const ConfigShow& arguments, const config::PluginSource& plugins, const std::string& format,
                    const std::string& file, std::ostream& output, std::ostream& log);

}  // namespace strata::cli
