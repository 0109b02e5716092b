#include "group/group_plan.hpp"

#include <fmt/ranges.h>
#include <strata/error.hpp>

#include <algorithm>
#include <numeric>

namespace strata::runtime {

namespace {

void check_partition(const MeshShape& mesh, const GroupSpec& spec) {
  std::vector<int> times(static_cast<std::size_t>(mesh.data));
  for (const std::vector<int>& members : spec.members) {
    if (members.empty() || !std::is_sorted(members.begin(), members.end()))
      throw Bug("group '" + spec.name + "' has a member list that is empty or not in ascending order");
    for (const int rank : members)
      if (rank < 0 || rank >= mesh.data || ++times[static_cast<std::size_t>(rank)] > 1)
        throw Bug("group '" + spec.name + "' lists data-parallel rank " + std::to_string(rank) +
                  ", which is outside 0.." + std::to_string(mesh.data - 1) + " or listed twice");
  }
  for (int rank = 0; rank < mesh.data; ++rank)
    if (times[static_cast<std::size_t>(rank)] == 0)
      throw Bug("group '" + spec.name + "' leaves out data-parallel rank " + std::to_string(rank));
}

}  // namespace

GroupRequest world_request(const MeshShape& mesh) {
  GroupRequest request{"world", std::vector<int>(static_cast<std::size_t>(mesh.size()))};
  std::iota(request.members.begin(), request.members.end(), 0);
  return request;
}

GroupRequest pipeline_request(const MeshShape& mesh, const MeshPlace& place) {
  GroupRequest request{fmt::format("pipeline[data={},tensor={}]", place.data, place.tensor), {}};
  for (int stage = 0; stage < mesh.pipeline; ++stage)
    request.members.push_back(rank_of(mesh, {stage, place.data, place.tensor}));
  return request;
}

GroupRequest tensor_request(const MeshShape& mesh, const MeshPlace& place) {
  GroupRequest request{fmt::format("tensor[pipeline={},data={}]", place.pipeline, place.data), {}};
  for (int tensor = 0; tensor < mesh.tensor; ++tensor)
    request.members.push_back(rank_of(mesh, {place.pipeline, place.data, tensor}));
  return request;
}

GroupRequest stage_request(const MeshShape& mesh, const MeshPlace& place) {
  GroupRequest request{fmt::format("stage[pipeline={}]", place.pipeline), {}};
  for (int rank = 0; rank < mesh.size(); ++rank)
    if (place_of(mesh, rank).pipeline == place.pipeline) request.members.push_back(rank);
  return request;
}

GroupRequest stages_request(const MeshShape& mesh, const MeshPlace& place, const std::vector<int>& stages) {
  GroupRequest request{fmt::format("stages{}[data={},tensor={}]", fmt::join(stages, "+"), place.data, place.tensor),
                       {}};
  for (const int stage : stages) request.members.push_back(rank_of(mesh, {stage, place.data, place.tensor}));
  return request;
}

GroupRequest data_parallel_request(const MeshShape& mesh, const MeshPlace& place, const GroupSpec& spec) {
  check_partition(mesh, spec);
  const auto mine = std::find_if(spec.members.begin(), spec.members.end(), [&](const std::vector<int>& members) {
    return std::find(members.begin(), members.end(), place.data) != members.end();
  });
  const std::string number = spec.members.size() == 1 ? "" : "." + std::to_string(mine - spec.members.begin());
  GroupRequest request{fmt::format("{}{}[pipeline={},tensor={}]", spec.name, number, place.pipeline, place.tensor), {}};
  for (const int data : *mine) request.members.push_back(rank_of(mesh, {place.pipeline, data, place.tensor}));
  return request;
}

}  // namespace strata::runtime
