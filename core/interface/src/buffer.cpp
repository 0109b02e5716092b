#include <strata/buffer.hpp>
#include <strata/error.hpp>

namespace strata {

const at::Tensor& Buffer::tensor() const {
  if (!here()) throw Bug("{} is used while it is away from the device", name_);
  return tensor_;
}

at::Tensor BufferRange::tensor() const {
  return buffer->tensor().narrow(0, begin, elements);
}

}  // namespace strata
