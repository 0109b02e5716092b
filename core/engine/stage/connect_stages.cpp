#include "stage/connect_stages.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

namespace strata::stage {

void connect_stages(Group& pipeline, const Placement& placement, at::Device device) {
  std::set<std::pair<int, int>> pairs;
  for (std::size_t chunk = 1; chunk < placement.stage_of_chunk.size(); ++chunk) {
    const auto [first, second] = std::minmax(placement.stage_of_chunk[chunk - 1], placement.stage_of_chunk[chunk]);
    if (first != second) pairs.emplace(first, second);
  }
  const at::Tensor element = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device));
  const int own = pipeline.rank();
  for (const auto& [first, second] : pairs)
    for (const auto& [from, to] : {std::pair(first, second), std::pair(second, first)}) {
      if (own == from) pipeline.send(element, to).wait();
      if (own == to) pipeline.receive(element, from).wait();
    }
}

}  // namespace strata::stage
