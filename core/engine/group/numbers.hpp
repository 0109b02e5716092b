// Reductions and gathers of numbers over ranks. They travel in a tensor on `device`, the device of the group's tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace strata::group {

// Reduces element by element over the ranks. [collective] over the group; blocks the host.
std::vector<std::int64_t> reduce_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine,
                                         ReduceOperation operation = ReduceOperation::Sum);
// Returns all ranks' numbers in rank order, equally many of each. [collective] over the group; blocks the host.
std::vector<std::int64_t> gather_numbers(Group& group, at::Device device, const std::vector<std::int64_t>& mine);

// Returns the values of all ranks; a value is made of such numbers, or as long as some of them.
template <typename Value>
std::vector<Value> gather_values(Group& group, at::Device device, const Value& mine) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) % sizeof(std::int64_t) == 0);
  std::vector<std::int64_t> numbers(sizeof mine / sizeof(std::int64_t));
  std::memcpy(numbers.data(), &mine, sizeof mine);
  const std::vector<std::int64_t> all = gather_numbers(group, device, numbers);
  std::vector<Value> values(static_cast<std::size_t>(group.size()));
  std::memcpy(static_cast<void*>(values.data()), all.data(), values.size() * sizeof(Value));
  return values;
}

}  // namespace strata::group
