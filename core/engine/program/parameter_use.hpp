// Flat parameters that each layer uses, and the loop shared by the passes that handle them.
#pragma once
#include "program/instruction.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace strata::program {

struct FlatParameterSize {
  std::int64_t elements = 0;  // elements of the full values
  bool trainable = true;      // false: frozen, no gradient
  bool deferred = false;      // gradient is computed by BackwardWeight if the backward is split
  // True if values or gradient have another home between their uses. Equal on all ranks of a stage, also on a rank that
  // owns none of them, because it decides the order of the partitioner's calls. Resident buffers of a partitioner stay
  // anyway.
  bool values_leave = false;
  bool gradient_leaves = false;
  // Bytes of this rank's buffers that are away from the device between their uses. 0 on a rank that owns none.
  std::int64_t parameter_moves = 0;
  std::int64_t gradient_moves = 0;
  std::int64_t state_moves = 0;
  std::int64_t kept_moves = 0;  // bytes of the gradient kept from the previous step
  int update_parts = 1;         // parts in which the state moves and the optimizer updates, one by one
  // Returns the bytes that move; for the state, of one part.
  std::int64_t moves(Category category, bool kept = false) const {
    return kept                              ? kept_moves
           : category == Category::Parameter ? parameter_moves
           : category == Category::Gradient  ? gradient_moves
                                             : state_moves / update_parts;
  }
  // True if the optimizer updates in place: state, gradient and parameter in their homes.
  bool updates_at_home = false;
};

// Flat parameters of all layers of the model. Several layers may use one (a tied one, or a bucket of small ones).
struct ParameterUse {
  std::vector<FlatParameterSize> flat_parameters;
  std::vector<std::vector<int>> flat_parameters_of_layer;  // each at most once per layer
  // Bytes, by layer, of inputs that are away from forward to backward if the layer is recomputed. Empty: none.
  std::vector<std::int64_t> input_moves;
  // True, by layer, if its backward reads the parameters' values without recomputation. Empty: all do.
  std::vector<bool> backward_reads;

  const std::vector<int>& of_layer(int layer) const {
    return flat_parameters_of_layer.at(static_cast<std::size_t>(layer));
  }
  const FlatParameterSize& flat_parameter(int index) const {
    return flat_parameters.at(static_cast<std::size_t>(index));
  }
  bool backward_reads_values(int layer) const {
    return backward_reads.empty() || backward_reads.at(static_cast<std::size_t>(layer));
  }
  bool input_leaves(const Instruction& compute) const {
    return compute.recompute && !input_moves.empty() && input_moves.at(static_cast<std::size_t>(compute.layer)) > 0;
  }
  // Returns the bytes of a Fetch, Await, Store or Settle; 0: its buffer does not move.
  std::int64_t moved_bytes(const Instruction& movement) const {
    return movement.category == Category::Activation
               ? input_moves.at(static_cast<std::size_t>(movement.layer))
               : flat_parameter(movement.flat_parameter).moves(movement.category, movement.kept());
  }
};

// True if the instruction computes a part of the gradient of a flat parameter of its layer.
bool writes_gradient(const Instruction& instruction, const FlatParameterSize& parameter);

// Copies `program` and calls `before` and `after` to append instructions around each compute instruction; `position`
// counts the compute instructions. `after` appends after the sends that directly follow, because another stage may be
// waiting for them.
using Append = std::function<void(std::size_t position, const Instruction& compute, Program& result)>;
Program weave(const Program& program, const Append& before, const Append& after);

}  // namespace strata::program
