// Tensors as rank-local bytes in a checkpoint (StateWriter::rank_bytes), one value each, so that only one is copied at
// a time.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/state_stream.hpp>

#include <string>
#include <vector>

namespace strata::toolbox {

// Saves the tensors under "NAME 0", "NAME 1" ...
void save_tensors(StateWriter& writer, const std::string& name, const std::vector<at::Tensor>& tensors);
// Fills the tensors, which have the sizes and dtypes of the saved ones. Also reads the format of former versions: the
// bytes of all tensors in a row, under NAME. Throws UserError for any other bytes.
void load_tensors(const StateReader& reader, const std::string& name, const std::vector<at::Tensor>& tensors);

}  // namespace strata::toolbox
