#include "group/numbers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace strata::group {

namespace {

at::Tensor tensor_of(const std::vector<std::int64_t>& numbers, at::Device device) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kLong)).to(device);
}

std::vector<std::int64_t> read_back(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu();
  const auto* const begin = host.const_data_ptr<std::int64_t>();
  return {begin, begin + host.numel()};
}

}  // namespace

std::vector<std::int64_t> reduce_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine,
                                         ReduceOperation operation) {
  const at::Tensor numbers = tensor_of(mine, device);
  group.all_reduce(numbers, operation).wait();
  return read_back(numbers);
}

std::vector<std::int64_t> gather_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine) {
  const at::Tensor sent = tensor_of(mine, device);
  const at::Tensor all = at::empty({group.size() * sent.numel()}, sent.options());
  group.all_gather(all, sent).wait();
  return read_back(all);
}

}  // namespace strata::group
