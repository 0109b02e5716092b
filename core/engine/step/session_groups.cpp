// The groups that the partitioner and the optimizer ask for.
#include <strata/error.hpp>

#include <algorithm>

#include "group/group_plan.hpp"
#include "plugins/plugin_call.hpp"
#include "step/session.hpp"

namespace strata::runtime {

namespace {
constexpr const char* sums_group = "stage";
}  // namespace

// The engine's own groups but the world, then the partitioner's, one after the other in the same order on every rank.
void Session::connect_groups(GroupProvider& groups) {
  groups_.emplace("pipeline", groups.make(request_along(mesh_, place_, "pipeline", {Axis::Pipeline})));
  stage_.pipeline = groups_.at("pipeline").get();
  const std::vector<GroupSpec> specs =
      plugin_call(stage_.partitioner.name, "groups()", stage_.rank, [&] { return stage_.partitioner->groups(mesh_); });
  for (const GroupSpec& spec : specs) {
    if (groups_.count("partitioner." + spec.name) != 0)
      throw Bug("{} names group \"{}\" twice", stage_.partitioner.name, spec.name);
    if (spec.name == exchange_group)
      throw Bug("{} names a group \"{}\", as the engine's own is called", stage_.partitioner.name, spec.name);
    const GroupRequest request = plugin_call(stage_.partitioner.name, "groups()", stage_.rank,
                                             [&] { return data_parallel_request(mesh_, place_, spec); });
    groups_.emplace("partitioner." + spec.name, groups.make(request));
  }
}

// The ranks of the stage, for the sums that the optimizer asks for. Every rank looks at the whole model, so all come to
// the same answer.
void Session::connect_sums(GroupProvider& groups) {
  std::vector<ParameterInfo> parameters;
  for (const LayerInfo& layer : stage_.model_layers)
    parameters.insert(parameters.end(), layer.parameters.begin(), layer.parameters.end());
  sums_of_round_ = plugin_call(stage_.optimizer.name, "sums()", stage_.rank,
                               [&] { return state::sums_of_round(parameters, *stage_.optimizer); });
  if (std::ranges::find(sums_of_round_, true) == sums_of_round_.end()) return;
  groups_.emplace(sums_group, groups.make(request_along(mesh_, place_, "stage", axes_without({Axis::Pipeline}))));
  stage_.peers = groups_.at(sums_group).get();
}

}  // namespace strata::runtime
