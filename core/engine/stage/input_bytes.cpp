#include "stage/input_bytes.hpp"

#include <strata/error.hpp>

#include <string>

namespace strata::stage {

InputBytes::InputBytes(const std::vector<TensorShape>& shapes) {
  constexpr std::int64_t alignment = 64;
  for (const TensorShape& shape : shapes) {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(shape.dtype));
    for (const std::int64_t extent : shape.extents) bytes *= extent;
    parts_.push_back({shape, bytes_, bytes});
    bytes_ += (bytes + alignment - 1) / alignment * alignment;
  }
}

void InputBytes::write(const Tensors& input, const at::Tensor& buffer) const {
  const Tensors views = read(buffer);
  bool equal = input.size() == views.size();
  for (std::size_t i = 0; equal && i < views.size(); ++i)
    equal = input[i].sizes() == views[i].sizes() && input[i].scalar_type() == views[i].scalar_type();
  if (!equal) throw Bug("a layer's outputs have other shapes or dtypes than its description says");
  for (std::size_t i = 0; i < views.size(); ++i) views[i].copy_(input[i].detach());
}

Tensors InputBytes::read(const at::Tensor& buffer) const {
  Tensors views;
  for (const Part& part : parts_)
    views.push_back(buffer.narrow(0, part.begin, part.bytes).view(part.shape.dtype).view(part.shape.extents));
  return views;
}

}  // namespace strata::stage
