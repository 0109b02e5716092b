#include "cli/config_command.hpp"

#include "config/show.hpp"
#include "config/show_learning_rate.hpp"

namespace strata::cli {

void config_show(const ConfigShow& arguments, const PluginSourceFactory& plugins, std::ostream& output) {
  const config::ListingFormat format = config::listing_format(arguments.format);
  std::vector<config::Node> layers = config::read_layers(arguments.file, arguments.settings);
  const std::unique_ptr<config::PluginSource> source = plugins(config::plugin_path(layers));
  const config::RunConfig run = config::resolve(std::move(layers), arguments.world, *source);
  if (arguments.learning_rate) return config::write_learning_rates(run.learning_rate, format, output);
  output << config::format_listing(run.listing, format);
}

}  // namespace strata::cli
