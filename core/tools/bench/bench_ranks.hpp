#pragma once
#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>
#include <strata/partitioner.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/group_factory.hpp"
#include "group/launch_place.hpp"

namespace strata::bench {

using NamedGroups = std::map<std::string, std::unique_ptr<CheckedGroup>>;

// All ranks of a bench are data-parallel.
inline MeshShape mesh_of(const group::LaunchPlace& place) {
  return {{Axis::Data, place.size}};
}

// The ranks of a bench, connected by a communicator, which must outlive this object.
class BenchRanks {
 public:
  BenchRanks(Communicator& communicator, const group::LaunchPlace& place);  // [collective]
  CheckedGroup& all() { return *all_; }
  // The groups that a partitioner needs, by name. [collective]
  NamedGroups connect(const std::vector<GroupSpec>& specs);

 private:
  MeshShape mesh_;
  int rank_;
  group::GroupFactory factory_;
  std::unique_ptr<CheckedGroup> all_;
};

// Starts a collective, of sums as in training; rank 0 is the root. `part`: this rank's part of `whole`. An all-to-all
// writes to `other`. [collective]
Pending start(Collective collective, Group& ranks, const at::Tensor& whole, const at::Tensor& part,
              const at::Tensor& other);

}  // namespace strata::bench
