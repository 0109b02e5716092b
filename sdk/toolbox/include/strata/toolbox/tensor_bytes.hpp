// Tensors as bytes of a rank's own in a checkpoint (StateWriter::rank_bytes), one value each, so that no more than one
// is copied at a time.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/state_stream.hpp>

#include <string>
#include <vector>

namespace strata::toolbox {

// Under "NAME 0", "NAME 1" ...
void save_tensors(StateWriter& writer, const std::string& name, const std::vector<at::Tensor>& tensors);
// Fills the tensors, which have the sizes and dtypes of those that were saved. Reads also what former versions saved:
// all bytes, one tensor's after the other's, under NAME. Throws UserError where there are other bytes than these.
void load_tensors(const StateReader& reader, const std::string& name, const std::vector<at::Tensor>& tensors);

}  // namespace strata::toolbox
