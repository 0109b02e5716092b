#include <ATen/ops/empty.h>

#include <strata/error.hpp>
#include <strata/toolbox/tensor_bytes.hpp>

#include <cstring>

namespace strata::toolbox {

void add_bytes(std::vector<std::byte>& all, const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().contiguous();
  const auto* const begin = static_cast<const std::byte*>(host.const_data_ptr());
  all.insert(all.end(), begin, begin + host.nbytes());
}

void TensorBytes::read(const at::Tensor& into) {
  const at::Tensor host = at::empty(into.sizes(), at::TensorOptions().dtype(into.scalar_type()));
  if (at_ + host.nbytes() > all_.size()) throw UserError(what_ + ": the checkpoint has too few bytes");
  std::memcpy(host.mutable_data_ptr(), all_.data() + at_, host.nbytes());
  into.copy_(host);
  at_ += host.nbytes();
}

}  // namespace strata::toolbox
