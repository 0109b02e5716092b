#include "runtime/group/group_plan.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <numeric>

namespace strata::runtime {

namespace {

std::string coordinates(const MeshPlace& place) {
  return "[pipeline=" + std::to_string(place.pipeline) + ",tensor=" + std::to_string(place.tensor) + "]";
}

void check_partition(const MeshShape& mesh, const GroupSpec& spec) {
  std::vector<int> times(static_cast<std::size_t>(mesh.data));
  for (const std::vector<int>& members : spec.members) {
    if (members.empty() || !std::is_sorted(members.begin(), members.end()))
      throw Bug("group '" + spec.name + "' has a member list that is empty or not in ascending order");
    for (const int rank : members) {
      if (rank < 0 || rank >= mesh.data || ++times[static_cast<std::size_t>(rank)] > 1)
        throw Bug("group '" + spec.name + "' lists data-parallel rank " + std::to_string(rank) + ", which is outside 0.." +
                  std::to_string(mesh.data - 1) + " or listed twice");
    }
  }
  for (int rank = 0; rank < mesh.data; ++rank)
    if (times[static_cast<std::size_t>(rank)] == 0)
      throw Bug("group '" + spec.name + "' leaves out data-parallel rank " + std::to_string(rank));
}

}  // namespace

PlannedGroup world_group(const MeshShape& mesh) {
  PlannedGroup group{"world", std::vector<int>(static_cast<std::size_t>(mesh.size()))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

std::vector<PlannedGroup> data_parallel_groups(const MeshShape& mesh, const GroupSpec& spec) {
  check_partition(mesh, spec);
  std::vector<PlannedGroup> groups;
  for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline)
    for (int tensor = 0; tensor < mesh.tensor; ++tensor)
      for (std::size_t part = 0; part < spec.members.size(); ++part) {
        const std::string name = spec.members.size() == 1 ? spec.name : spec.name + "." + std::to_string(part);
        PlannedGroup& group = groups.emplace_back(PlannedGroup{name + coordinates({pipeline, 0, tensor}), {}});
        for (const int data : spec.members[part]) group.members.push_back(rank_of(mesh, {pipeline, data, tensor}));
      }
  return groups;
}

std::vector<PlannedGroup> pipeline_groups(const MeshShape& mesh) {
  std::vector<PlannedGroup> groups;
  for (int data = 0; data < mesh.data; ++data)
    for (int tensor = 0; tensor < mesh.tensor; ++tensor) {
      PlannedGroup& group = groups.emplace_back(
          PlannedGroup{"pipeline[data=" + std::to_string(data) + ",tensor=" + std::to_string(tensor) + "]", {}});
      for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline) group.members.push_back(rank_of(mesh, {pipeline, data, tensor}));
    }
  return groups;
}

std::vector<PlannedGroup> tensor_groups(const MeshShape& mesh) {
  std::vector<PlannedGroup> groups;
  for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline)
    for (int data = 0; data < mesh.data; ++data) {
      PlannedGroup& group = groups.emplace_back(
          PlannedGroup{"tensor[pipeline=" + std::to_string(pipeline) + ",data=" + std::to_string(data) + "]", {}});
      for (int tensor = 0; tensor < mesh.tensor; ++tensor) group.members.push_back(rank_of(mesh, {pipeline, data, tensor}));
    }
  return groups;
}

const PlannedGroup& group_of(const std::vector<PlannedGroup>& groups, int rank) {
  for (const PlannedGroup& group : groups)
    if (std::find(group.members.begin(), group.members.end(), rank) != group.members.end()) return group;
  throw Bug("rank " + std::to_string(rank) + " is in none of the groups" + (groups.empty() ? "" : " like " + groups.front().name));
}

}  // namespace strata::runtime
