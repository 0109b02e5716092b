// `step_policy: local`: which groups train by themselves, and in which fragments they are averaged.
#include <strata/error.hpp>

#include <map>

#include "plugins/plugin_call.hpp"
#include "step/session.hpp"

namespace strata::runtime {

Group* Session::replicas() const {
  return plugin_call(stage_.partitioner.name, "replicas()", stage_.rank,
                     [&] { return stage_.partitioner->replicas(); });
}

// Every rank looks at the config and the whole model, so that all come to the same refusal.
void Session::train_locally(const config::RunConfig& config) {
  const auto refuse = [](const std::string& found, const std::string& rule, const std::string& remedy) {
    throw UserError("step_policy is local, and {}: {}; {}, or set step_policy: plain", found, rule, remedy);
  };
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
  stage_.local = LocalTraining{config.local, config.train.steps, replicas(), fragments_of_flats(fragments)};
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
