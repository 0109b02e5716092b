// `step_policy: local`: which groups train by themselves, in which fragments they are averaged, and what cannot be
// combined with it.
#include <strata/error.hpp>

#include <algorithm>
#include <map>

#include "plugins/plugin_call.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Every rank looks at the config, the plugins and the whole model, so that all come to the same refusal.
void Session::check_local(const config::RunConfig& config) {
  if (policy_ != config::StepPolicy::Local) return;
  const auto refuse = [](const std::string& found, const std::string& rule, const std::string& remedy) {
    throw UserError("step_policy is local, and {}: {}; {}, or set step_policy: plain", found, rule, remedy);
  };
  LocalTraining local{config.local, config.train.steps, nullptr, {}};
  local.replicas =
      plugin_call(stage_.partitioner.name, "replicas()", stage_.rank, [&] { return stage_.partitioner->replicas(); });
  if (local.replicas == nullptr)
    refuse("with its options " + stage_.partitioner.name + " has no ranks that own the same slices",
           "what trains by itself is a group of ranks that hold all slices once",
           "choose a partitioner that shards inside groups and replicates across them");
  if (local.groups() == 1)
    refuse(format("{} makes one group of the {} data-parallel ranks", stage_.partitioner.name, mesh_.size(Axis::Data)),
           "weights are averaged over two groups or more", "make the groups smaller or take more ranks");
  if (std::ranges::find(sums_of_round_, true) != sums_of_round_.end())
    refuse(stage_.optimizer.name + " needs sums over the ranks of a stage",
           "these ranks are of several groups, which train by themselves",
           "choose an optimizer that updates each piece by itself");
  if (stage_.optimizer->trains_elsewhere())
    refuse(stage_.optimizer.name + " trains at other weights than its masters", "the masters are what is averaged",
           "choose an optimizer that trains at its masters");
  for (const auto& [key, choice] : {std::pair{"offload.parameters", &config.offload.parameters},
                                    std::pair{"offload.optimizer", &config.offload.optimizer}})
    if (*choice)
      refuse(std::string(key) + " is set", "weights are averaged on the device", std::string("leave ") + key + " out");
  if (config.local.momentum == 1.0)
    refuse("local.momentum is 1", "what it sums up would never fade", "set it to less, such as 0.9");
  if (config.local.rate == 0.0)
    refuse("local.rate is 0", "every average would be thrown away", "set it to more, such as 0.7");
  const std::int64_t fragments = config.local.fragments;
  if (fragments > config.local.steps)
    refuse(format("local.fragments is {} and local.steps {}", fragments, config.local.steps),
           "each fragment is averaged at a step of its own", "set local.fragments to at most local.steps");
  if (fragments > stage_.layers_in_model)
    refuse(format("local.fragments is {} and the model has {} layers", fragments, stage_.layers_in_model),
           "fragments are made of layers", "set local.fragments to at most that number");
  local.fragments = fragments_of_flats(fragments);
  stage_.local = std::move(local);
}

// By how many of the whole model's elements come before the flat parameter's first one, so that stages that share a
// tied one agree.
std::vector<int> Session::fragments_of_flats(std::int64_t fragments) const {
  std::map<std::string, std::int64_t> before;  // by parameter, or name of a tie
  std::int64_t elements = 0;
  const auto key = [](const ParameterInfo& info) { return info.tie.empty() ? info.name : "tie " + info.tie; };
  for (const LayerInfo& layer : stage_.model_layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (before.emplace(key(parameter), elements).second) elements += parameter.elements();
  std::vector<int> result;
  for (const FlatParameter* const flat : flat_) {
    const std::vector<ParameterSpan>& spans = flat->info().parameters;
    const std::int64_t place = spans.empty() ? 0 : before.at(key(spans.front().info));
    result.push_back(static_cast<int>(place * fragments / elements));
  }
  return result;
}

}  // namespace strata::runtime
