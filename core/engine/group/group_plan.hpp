// Groups of a rank, computed from the mesh alone. All ranks request them in the same order, so that none waits for
// another's group.
#pragma once
#include <strata/mesh.hpp>
#include <strata/partitioner.hpp>

#include "group/group_provider.hpp"

namespace strata::runtime {

GroupRequest world_request(const MeshShape& mesh);
// Returns the ranks of all stages with this rank's data and tensor index; the group rank is the stage.
GroupRequest pipeline_request(const MeshShape& mesh, const MeshPlace& place);
// Returns the ranks that share this rank's layers, with its stage and data index; the group rank is the tensor index.
GroupRequest tensor_request(const MeshShape& mesh, const MeshPlace& place);
// Returns the ranks of this rank's stage, over data and tensor.
GroupRequest stage_request(const MeshShape& mesh, const MeshPlace& place);
// Returns the member list of `spec` that contains this rank, among the ranks of its stage and tensor index. Throws Bug
// on all ranks if the spec is not a partition of the data-parallel ranks, because a group unknown to some ranks would
// never connect.
GroupRequest data_parallel_request(const MeshShape& mesh, const MeshPlace& place, const GroupSpec& spec);

// Returns the ranks of `stages` (ascending, including this rank's) with this rank's data and tensor index.
GroupRequest stages_request(const MeshShape& mesh, const MeshPlace& place, const std::vector<int>& stages);

}  // namespace strata::runtime
