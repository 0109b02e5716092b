#include "stage/answers.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "plugins/plugin_call.hpp"
#include "stage/units.hpp"
#include "state/parameter_sums.hpp"

namespace strata::stage {

namespace {

bool releases(const Lookahead& lookahead) {
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  return !lookahead.resident && (lookahead.reuse_distance < all || lookahead.live_parameters < all);
}

}  // namespace

std::vector<bool> sums_of_round(const PluginSet& plugins, const RankPlace& place, const Layers& layers) {
  std::vector<ParameterInfo> parameters;
  for (const LayerInfo& layer : layers.model())
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  return plugins::plugin_call(plugins.optimizer.name, "sums()", place.rank,
                              [&] { return state::sums_of_round(parameters, *plugins.optimizer); });
}

Group* replicas(const PluginSet& plugins, const RankPlace& place) {
  return plugins::plugin_call(plugins.partitioner.name, "replicas()", place.rank,
                              [&] { return plugins.partitioner->replicas(); });
}

config::Answers ask_features(const PluginSet& plugins, const RankPlace& place, const Layers& layers, bool attached) {
  const auto ask = [&](const auto& plugin, const char* call, const auto& function) {
    return plugins::plugin_call(plugin.name, call, place.rank, function);
  };
  config::Answers answers;
  answers.updates_within_step = layers.updates_within_step() > 0;
  answers.searches_scale =
      ask(plugins.precision, "searches_scale()", [&] { return plugins.precision->searches_scale(); });
  answers.measures = ask(plugins.precision, "maxima()", [&] { return plugins.precision->maxima(); }).defined();
  answers.releases_parameters =
      releases(ask(plugins.partitioner, "lookahead()", [&] { return plugins.partitioner->lookahead(); }));
  if (attached) {
    const Group* const ranks = replicas(plugins, place);
    answers.replica_groups = ranks == nullptr ? 0 : ranks->size();
  }
  answers.needs_sums = std::ranges::any_of(sums_of_round(plugins, place, layers), [](bool sums) { return sums; });
  answers.trains_elsewhere =
      ask(plugins.optimizer, "trains_elsewhere()", [&] { return plugins.optimizer->trains_elsewhere(); });
  answers.split_unit = split_unit(plugins.optimizer, place, layers.model());
  answers.exchanges = plugins.own_exchange.optimizer() != nullptr;
  answers.leaves_gradients = plugins.own_exchange.partitioner_can();
  answers.owns_all = answers.leaves_gradients && plugins.own_exchange.owns_all();
  for (const auto& [name, tie] : layers.ties())
    if (tie.chunks.size() > 1 && tie.first_use.trainable && answers.shared_over_chunks.empty())
      answers.shared_over_chunks = tie.first_use.name;
  return answers;
}

}  // namespace strata::stage
