// The ranks of an exchange that the optimizer makes itself.
#include "group/group_plan.hpp"
#include "plugins/plugin_call.hpp"
#include "step/session_contexts.hpp"

namespace strata::runtime {

void Session::connect_own_exchange(GroupProvider& groups) {
  ExchangingOptimizer* const exchanging = plugins_.own_exchange.optimizer();
  if (exchanging == nullptr) return;
  std::vector<std::vector<PieceInfo>> whole;
  for (const FlatParameter* const flat : flat_) {
    if (!flat->info().trainable) continue;
    std::vector<PieceInfo>& call = whole.emplace_back();
    std::vector<Piece>& own = stage_.own_gradients[flat->info().id].pieces;
    for (const ParameterSpan& span : flat->info().parameters)
      own.emplace_back().info = call.emplace_back(state::piece_info(span, 0, span.elements()));
  }
  if (mesh_.size(Axis::Data) == 1) return;
  GroupSpec all{exchange_group, {{}}};
  for (int rank = 0; rank < mesh_.size(Axis::Data); ++rank) all.members.front().push_back(rank);
  const auto made = groups_.emplace(exchange_group, groups.make(data_parallel_request(mesh_, place_, all))).first;
  plugin_call(stage_.optimizer.name, "connect()", stage_.rank,
              [&] { exchanging->connect(*made->second, *context_, whole, plugins_.own_exchange.owns_all()); });
}

}  // namespace strata::runtime
