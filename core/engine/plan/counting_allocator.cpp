#include "plan/counting_allocator.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::plan {

// The context of a tensor without memory; the count lives as long as the last of them.
struct CountingAllocator::Allocation {
  ~Allocation() { count->now -= bytes; }
  std::shared_ptr<Count> count;
  std::int64_t bytes;
};

CountingAllocator::CountingAllocator() : behind_(c10::GetAllocator(c10::DeviceType::Meta)) {
  c10::SetAllocator(c10::DeviceType::Meta, this);
  strata_check(c10::GetAllocator(c10::DeviceType::Meta) == this,
               "libtorch's allocator of meta tensors can be replaced");
}

CountingAllocator::~CountingAllocator() {
  c10::SetAllocator(c10::DeviceType::Meta, behind_);
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  count_->now += size;
  count_->peak = std::max(count_->peak.load(), count_->now.load());
  return {nullptr, new Allocation{count_, size}, [](void* context) { delete static_cast<Allocation*>(context); },
          c10::Device(c10::DeviceType::Meta)};
}

}  // namespace strata::plan
