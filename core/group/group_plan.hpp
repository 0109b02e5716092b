// Which groups a rank is in, from the mesh alone. All ranks ask for their groups in the same order, so no two wait for
// each other.
#pragma once
#include <strata/mesh.hpp>
#include <strata/partitioner.hpp>

#include "group/group_provider.hpp"

namespace strata::runtime {

GroupRequest world_request(const MeshShape& mesh);
// The stages that share this rank's data and tensor index; the group rank is the stage.
GroupRequest pipeline_request(const MeshShape& mesh, const MeshPlace& place);
// The member list of `spec` with this rank in it, among the ranks of its stage and tensor index. Throws Bug, the same
// on all ranks, when the spec is not a partition of the data-parallel ranks: a group that some ranks do not know of
// would never connect.
GroupRequest data_parallel_request(const MeshShape& mesh, const MeshPlace& place, const GroupSpec& spec);

}  // namespace strata::runtime
