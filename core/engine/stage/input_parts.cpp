#include "stage/input_parts.hpp"

#include <ATen/ops/zeros.h>
#include <strata/rows.hpp>

#include <algorithm>

namespace strata::stage {

namespace {

std::int64_t elements_of(const TensorShape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape.extents) elements *= extent;
  return elements;
}

}  // namespace

std::vector<TensorShape> shapes_of_parts(const std::vector<TensorShape>& whole, int ranks) {
  std::vector<TensorShape> parts;
  for (const TensorShape& shape : whole) parts.push_back({{rows_of_part(elements_of(shape), ranks)}, shape.dtype});
  return parts;
}

Tensors parts_of(const Tensors& whole, const Group& group) {
  Tensors parts;
  for (const at::Tensor& tensor : whole) {
    const std::int64_t length = rows_of_part(tensor.numel(), group.size());
    const std::int64_t begin = std::min(group.rank() * length, tensor.numel());
    const std::int64_t count = std::min(length, tensor.numel() - begin);
    const at::Tensor part = at::zeros({length}, tensor.options().requires_grad(false));
    part.narrow(0, 0, count).copy_(tensor.detach().reshape({-1}).narrow(0, begin, count));
    parts.push_back(part);
  }
  return parts;
}

Tensors gather_parts(const Tensors& parts, const std::vector<TensorShape>& whole, Group& group) {
  std::vector<PendingRows> pending;
  for (std::size_t i = 0; i < parts.size(); ++i)
    pending.push_back(gather_rows(group, parts[i].unsqueeze(1), elements_of(whole[i])));
  Tensors tensors;
  for (std::size_t i = 0; i < parts.size(); ++i) tensors.push_back(pending[i].wait().view(whole[i].extents));
  return tensors;
}

}  // namespace strata::stage
