// Packs the input of a layer into the bytes of one buffer, while it is away from the device.
#pragma once
#include <strata/model.hpp>

#include <cstdint>
#include <vector>

namespace strata::stage {

class InputBytes {
 public:
  // Takes the outputs of the previous layer, as the model describes them.
  explicit InputBytes(const std::vector<TensorShape>& shapes);
  std::int64_t bytes() const { return bytes_; }
  // Throws Bug if the input has other shapes or dtypes than described.
  void write(const Tensors& input, const at::Tensor& buffer) const;
  Tensors read(const at::Tensor& buffer) const;  // views of the buffer

 private:
  struct Part {
    TensorShape shape;
    std::int64_t begin;
    std::int64_t bytes;
  };
  std::vector<Part> parts_;
  std::int64_t bytes_ = 0;
};

}  // namespace strata::stage
