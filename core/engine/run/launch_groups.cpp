#include "run/launch_groups.hpp"

#include <chrono>

#include "config/keys.hpp"
#include "config/listing.hpp"
#include "group/group_factory.hpp"
#include "group/run_store.hpp"
#include "run/rank_facts.hpp"

namespace strata::run {

namespace {
// Of every key what ranks compare by themselves: its value or, where rank 0 alone writes, whether it is given. Contents
// are compared when they are open; see rank_facts.hpp.
std::string text_of(const config::RunConfig& config) {
  std::string text;
  for (const config::Resolved& setting : config::listing(config)) {
    const config::Compared compared = config::effect_of(setting.path).compared;
    const std::string value = config::to_text(setting.value);
    if (compared == config::Compared::Value) text += setting.path + "=" + value + ";";
    if (compared == config::Compared::Use) text += (value.empty() ? "no " : "a path for ") + setting.path + ";";
  }
  return text;
}
}  // namespace

config::World world_of(const group::LaunchPlace& place) {
  config::World world{place.size, group::name_of(place.launcher), std::nullopt};
  if (place.local_size > 0) world.one_host = place.local_size == place.size;
  return world;
}

stage::MakeGroups launch_groups(const group::LaunchPlace& place, const std::string& also) {
  return [place, also](const config::RunConfig& config, const plugins::PluginRegistry& registry,
                       stage::PluginSet& plugins) -> std::unique_ptr<group::GroupProvider> {
    const std::chrono::milliseconds timeout(static_cast<std::int64_t>(config.communicator.timeout_s * 1000.0));
    auto store = std::make_unique<group::RunStore>(place, timeout);
    store->agree("the configs", also + text_of(config));
    if (place.size > 1)
      store->agree("the engines", engine_facts(registry), "install the same Strata, libtorch and plugins on all hosts");
    group::GroupSettings settings;
    settings.communicator = plugins.communicator.plugin;
    settings.rank = place.rank;
    settings.local_rank = place.local_rank;
    settings.device = at::Device(plugins.device->type());
    settings.timeout = timeout;
    settings.interface_address = place.interface_address;
    return std::make_unique<group::GroupFactory>(std::move(store), settings);
  };
}

}  // namespace strata::run
