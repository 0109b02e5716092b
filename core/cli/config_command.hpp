// defines: ConfigShow, PluginSourceFactory, config_show
#pragma once
#include <functional>
#include <memory>
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

// The plugins to be found with the config's plugin_path, which comes before all other folders.
using PluginSourceFactory = std::function<std::unique_ptr<config::PluginSource>(const std::string& plugin_path)>;

// Prints every value of the resolved config and where it comes from. Loads no plugin. Throws UserError,
// EnvironmentError.
void config_show(const ConfigShow& arguments, const PluginSourceFactory& plugins, std::ostream& output);

}  // namespace strata::cli
