#pragma once
#include <cstddef>
#include <vector>

#include "program/passes.hpp"
#include "program/validate_program.hpp"

namespace strata::program {

// Passes 1 and 2 for all stages; throws when they could deadlock.
inline std::vector<Program> communicate(const ComputeOrders& orders, const Placement& placement) {
  const auto chunks = static_cast<int>(placement.stage_of_chunk.size());
  const Timeline timeline = simulate(orders, placement, uniform_costs(chunks, {}));
  const std::vector<bool> plain(static_cast<std::size_t>(placement.layers_of_chunk.back().second), false);
  std::vector<Program> programs;
  for (std::size_t stage = 0; stage < orders.size(); ++stage) {
    programs.push_back(add_communication(expand_layers(orders[stage], placement, plain), static_cast<int>(stage),
                                         timeline, placement));
  }
  validate_communication(programs, placement);
  return programs;
}

// How many transfers a stage takes part in: two per micro-batch for each neighbouring chunk on another stage.
inline int transfers_of(int stage, const Placement& placement, int micro_batches) {
  int links = 0;
  for (std::size_t chunk = 0; chunk + 1 < placement.stage_of_chunk.size(); ++chunk) {
    const int from = placement.stage_of_chunk[chunk];
    const int to = placement.stage_of_chunk[chunk + 1];
    if (from != to && (from == stage || to == stage)) ++links;
  }
  return 2 * links * micro_batches;
}

}  // namespace strata::program
