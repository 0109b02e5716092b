// defines: PlannedGroup, world_group, data_parallel_groups, pipeline_groups, tensor_groups, group_of
// Which groups a run has: names and members, from the mesh alone. Each function returns a partition of ranks in one order on all
// ranks, so that connecting them one after the other cannot deadlock.
#pragma once
#include <strata/mesh.hpp>
#include <strata/partitioner.hpp>

#include <string>
#include <vector>

namespace strata::runtime {

struct PlannedGroup {
  std::string name;          // "shard[pipeline=0,tensor=1]"; "shard.2[...]" for the third of several member lists
  std::vector<int> members;  // ranks of the run, by rank in the group
};

PlannedGroup world_group(const MeshShape& mesh);
// What a partitioner asked for, once for each pipeline stage and tensor rank. Throws Bug naming the spec when its members are not a
// partition of the data-parallel ranks.
std::vector<PlannedGroup> data_parallel_groups(const MeshShape& mesh, const GroupSpec& spec);
// The ranks that differ in one axis only.
std::vector<PlannedGroup> pipeline_groups(const MeshShape& mesh);
std::vector<PlannedGroup> tensor_groups(const MeshShape& mesh);

// The group of the list in which `rank` is; throws Bug when there is none.
const PlannedGroup& group_of(const std::vector<PlannedGroup>& groups, int rank);

}  // namespace strata::runtime
