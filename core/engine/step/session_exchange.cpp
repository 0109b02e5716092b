// The ranks of an exchange that the optimizer makes itself.
#include "group/group_plan.hpp"
#include "plugins/plugin_call.hpp"
#include "step/gradient_path.hpp"
#include "step/session_contexts.hpp"

namespace strata::runtime {

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
