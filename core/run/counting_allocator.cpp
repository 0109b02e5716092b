#include "run/counting_allocator.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <atomic>

namespace strata::runtime {

struct CountingAllocator::Count {
  std::atomic<std::int64_t> now = 0;
  std::atomic<std::int64_t> peak = 0;
};

// What a tensor without memory has in its place; the count lives as long as the last of them.
struct CountingAllocator::Allocation {
  std::shared_ptr<Count> count;
  std::int64_t bytes;
};

class CountingAllocator::Front final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto size = static_cast<std::int64_t>(bytes);
    count_->now += size;
    count_->peak = std::max(count_->peak.load(), count_->now.load());
    return {nullptr, new Allocation{count_, size}, &release, c10::Device(c10::DeviceType::Meta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}
  Count& count() const { return *count_; }

 private:
  static void release(void* context) {
    const std::unique_ptr<Allocation> allocation(static_cast<Allocation*>(context));
    allocation->count->now -= allocation->bytes;
  }

  std::shared_ptr<Count> count_ = std::make_shared<Count>();
};

CountingAllocator::CountingAllocator()
    : behind_(c10::GetAllocator(c10::DeviceType::Meta)), front_(std::make_unique<Front>()) {
  c10::SetAllocator(c10::DeviceType::Meta, front_.get());
  strata_check(c10::GetAllocator(c10::DeviceType::Meta) == front_.get(),
               "libtorch's allocator of meta tensors can be replaced");
}

CountingAllocator::~CountingAllocator() {
  c10::SetAllocator(c10::DeviceType::Meta, behind_);
}

std::int64_t CountingAllocator::now() const {
  return front_->count().now;
}
std::int64_t CountingAllocator::peak() const {
  return front_->count().peak;
}
void CountingAllocator::count_moment(std::int64_t bytes) {
  front_->count().peak = std::max(front_->count().peak.load(), front_->count().now.load() + bytes);
}
void CountingAllocator::reset_peak() {
  front_->count().peak = front_->count().now.load();
}

}  // namespace strata::runtime
