#pragma once
#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>
#include <strata/partitioner.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/group_factory.hpp"
#include "tools/bench/bench.hpp"

namespace strata::bench {

using NamedGroups = std::map<std::string, std::unique_ptr<CheckedGroup>>;

// The ranks of a bench, connected by a communicator, which must outlive this object. All ranks are data-parallel.
class BenchRanks {
 public:
  BenchRanks(Communicator& communicator, const Settings& settings);  // [collective]
  MeshShape mesh() const { return mesh_; }
  CheckedGroup& all() { return *all_; }
  // The groups that a partitioner needs, by name. [collective]
  NamedGroups connect(const std::vector<GroupSpec>& specs);

 private:
  MeshShape mesh_;
  int rank_;
  runtime::GroupFactory factory_;
  std::unique_ptr<CheckedGroup> all_;
};

}  // namespace strata::bench
