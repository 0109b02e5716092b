#include "group/group_plan.hpp"

#include <fmt/format.h>
#include <strata/error.hpp>

#include <algorithm>

namespace strata::group {

namespace {

void check_partition(const MeshShape& mesh, const GroupSpec& spec) {
  std::vector<int> times(static_cast<std::size_t>(mesh.data_parallel()));
  for (const std::vector<int>& members : spec.members) {
    if (members.empty() || !std::is_sorted(members.begin(), members.end()))
      throw Bug("group '{}' has a member list that is empty or not in ascending order", spec.name);
    for (const int rank : members)
      if (rank < 0 || rank >= mesh.data_parallel() || ++times[static_cast<std::size_t>(rank)] > 1)
        throw Bug("group '{}' lists data-parallel rank {}, which is outside 0..{} or listed twice", spec.name, rank,
                  mesh.data_parallel() - 1);
  }
  for (int rank = 0; rank < mesh.data_parallel(); ++rank)
    if (times[static_cast<std::size_t>(rank)] == 0)
      throw Bug("group '{}' leaves out data-parallel rank {}", spec.name, rank);
}

// "[pipeline=1,data=0]": the indices of axes that are not in `along`; nothing if all are.
std::string shared_indices(const MeshPlace& place, const std::vector<Axis>& along) {
  std::string text;
  for (const Axis axis : axes)
    if (std::ranges::find(along, axis) == along.end())
      text += (text.empty() ? "[" : ",") + fmt::format("{}={}", name_of(axis), place.at(axis));
  return text.empty() ? "" : text + "]";
}

}  // namespace

GroupRequest request_along(const MeshShape& mesh, const MeshPlace& place, const std::string& name,
                           const std::vector<Axis>& along) {
  return {name + shared_indices(place, along), ranks_along(mesh, place, along)};
}

GroupRequest request_some(const MeshShape& mesh, const MeshPlace& place, const std::string& name, Axis axis,
                          const std::vector<int>& indices) {
  GroupRequest request{name + shared_indices(place, {axis}), {}};
  for (const int index : indices) request.members.push_back(rank_of(mesh, place.with(axis, index)));
  return request;
}

GroupRequest data_parallel_request(const MeshShape& mesh, const MeshPlace& place, const GroupSpec& spec) {
  check_partition(mesh, spec);
  const auto mine = std::ranges::find_if(spec.members, [&](const std::vector<int>& members) {
    return std::ranges::find(members, data_parallel_rank(mesh, place)) != members.end();
  });
  const std::string number = spec.members.size() == 1 ? "" : "." + std::to_string(mine - spec.members.begin());
  GroupRequest request{spec.name + number + shared_indices(place, axes_where(&AxisInfo::same_parameters)), {}};
  const std::vector<int> ranks = data_parallel_ranks(mesh, place);
  for (const int rank : *mine) request.members.push_back(ranks[static_cast<std::size_t>(rank)]);
  return request;
}

}  // namespace strata::group
