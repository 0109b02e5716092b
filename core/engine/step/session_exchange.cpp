// An exchange that the optimizer makes itself: what cannot be combined with it, and its ranks.
#include <fmt/format.h>
#include <strata/error.hpp>

#include "group/group_plan.hpp"
#include "plugins/plugin_call.hpp"
#include "step/gradient_path.hpp"
#include "step/session_contexts.hpp"

namespace strata::runtime {

// Every rank looks at the config and the plugins, so that all come to the same refusal, on one rank too.
void Session::check_own_exchange(const config::RunConfig& config) const {
  if (plugins_.own_exchange.optimizer() == nullptr) return;
  const std::string& optimizer = plugins_.optimizer.name;
  const auto refuse = [&](const std::string& found, const std::string& rule, const std::string& remedy) {
    throw UserError("{}, and {} sends momenta of its own in place of gradients: {}; {}, or choose another optimizer",
                    found, optimizer, rule, remedy);
  };
  const bool apart = plugins_.optimizer->trains_elsewhere();
  if (!plugins_.own_exchange.partitioner_can() || (apart && !plugins_.own_exchange.owns_all()))
    refuse(plugins_.partitioner.name + (plugins_.own_exchange.partitioner_can()
                                            ? " gives each rank a part of the optimizer's state"
                                            : " gives each rank a part of summed gradients"),
           apart ? "every rank trains at weights of its own, and needs all of every element"
                 : "every rank needs its own gradient of every element",
           apart ? "choose a partitioner of which every rank owns every element"
                 : "choose a partitioner that can leave every rank its own gradient of all elements");
  if (config.train.clip > 0.0)
    refuse(fmt::format("train.clip is {:g}", config.train.clip),
           "nobody knows the norm of the whole gradient once it is sent no more", "set train.clip: 0");
  if (config.step_policy != config::StepPolicy::Plain)
    refuse("step_policy is not plain", "an update follows its own gradient", "set step_policy: plain");
  if (stage_.updates_within_step > 0)
    refuse(plugins_.scheduler.name + " updates within the step",
           "the number of updates decides for a whole step what is sent", "choose a schedule of one update a step");
  if (config.offload.optimizer)
    refuse("offload.optimizer is set", "ranks update the same pieces at the same time, from the device",
           "leave offload.optimizer out");
}

void Session::connect_own_exchange(GroupProvider& groups) {
  ExchangingOptimizer* const exchanging = plugins_.own_exchange.optimizer();
  if (exchanging == nullptr) return;
  auto gradients = std::make_unique<OwnGradients>(stage_, *exchanging);
  const std::vector<std::vector<PieceInfo>> whole = gradients->parameters();
  own_gradients_ = std::move(gradients);
  stage_.own_gradients = own_gradients_.get();
  if (mesh_.size(Axis::Data) == 1) return;
  GroupSpec all{exchange_group, {{}}};
  for (int rank = 0; rank < mesh_.size(Axis::Data); ++rank) all.members.front().push_back(rank);
  const auto made = groups_.emplace(exchange_group, groups.make(data_parallel_request(mesh_, place_, all))).first;
  plugin_call(stage_.optimizer.name, "connect()", stage_.rank,
              [&] { exchanging->connect(*made->second, *context_, whole, plugins_.own_exchange.owns_all()); });
}

}  // namespace strata::runtime
