#pragma once
#include <c10/core/Allocator.h>
#include <strata/export.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace strata::plan {

// Counts the bytes of all meta tensors created during its lifetime, as if they had memory: replaces libtorch's
// allocator of meta tensors. Tensors may outlive it, but must not be resized then. At most one per process; not while
// other threads create meta tensors.
class STRATA_EXPORT CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator();
  ~CountingAllocator() override;
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  std::int64_t now() const { return count_->now; }
  std::int64_t peak() const { return count_->peak; }
  // Resets the peak to the current value.
  void reset_peak() { count_->peak = count_->now.load(); }

  c10::DataPtr allocate(std::size_t bytes) override;
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  struct Count {
    std::atomic<std::int64_t> now = 0;
    std::atomic<std::int64_t> peak = 0;
  };
  struct Allocation;
  c10::Allocator* behind_;
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
};

}  // namespace strata::plan
