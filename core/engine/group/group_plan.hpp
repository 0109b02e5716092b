// Groups of a rank, computed from the mesh alone. All ranks request them in the same order, so that none waits for
// another's group.
#pragma once
#include <strata/mesh.hpp>
#include <strata/partitioner.hpp>

#include <string>
#include <vector>

#include "group/group_provider.hpp"

namespace strata::group {

// Returns the ranks of the mesh that differ from this one only along the axes `along`, in ascending order. The group is
// called `name`, followed by the indices that its ranks share: "tensor[pipeline=1,data=0]".
GroupRequest request_along(const MeshShape& mesh, const MeshPlace& place, const std::string& name,
                           const std::vector<Axis>& along);
// The same without those ranks whose index along `axis` is not in `indices` (ascending, including this rank's).
GroupRequest request_some(const MeshShape& mesh, const MeshPlace& place, const std::string& name, Axis axis,
                          const std::vector<int>& indices);
// Returns the member list of `spec` that contains this rank, among the ranks that share its layers and its parts of
// them. Throws Bug on all ranks if the spec is not a partition of the data-parallel ranks, because a group unknown to
// some ranks would never connect.
GroupRequest data_parallel_request(const MeshShape& mesh, const MeshPlace& place, const GroupSpec& spec);

}  // namespace strata::group
