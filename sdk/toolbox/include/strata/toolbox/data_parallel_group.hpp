#pragma once
#include <strata/partitioner.hpp>

#include <numeric>
#include <string>
#include <vector>

namespace strata::toolbox {

// Returns one group of all data-parallel ranks, for a partitioner that shards over all of them.
inline std::vector<GroupSpec> data_parallel_group(const std::string& name, const MeshShape& mesh) {
  std::vector<int> everyone(static_cast<std::size_t>(mesh.data_parallel()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return {{name, {everyone}}};
}

}  // namespace strata::toolbox
