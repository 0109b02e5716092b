// Tensors one after the other in bytes, as a plugin saves what its rank keeps (StateWriter::rank_bytes).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

namespace strata::toolbox {

void add_bytes(std::vector<std::byte>& all, const at::Tensor& tensor);

class TensorBytes {
 public:
  // `what`: for messages, "errors of signs".
  TensorBytes(std::vector<std::byte> all, std::string what) : all_(std::move(all)), what_(std::move(what)) {}
  // The next tensor, which was added with this size and dtype. Throws UserError where there are too few bytes.
  void read(const at::Tensor& into);

 private:
  std::vector<std::byte> all_;
  std::string what_;
  std::size_t at_ = 0;
};

}  // namespace strata::toolbox
