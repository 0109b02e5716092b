#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace strata::runtime {

// Counts the bytes that meta tensors would take, of all that are made between its making and its destruction: it stands
// before libtorch's allocator of meta tensors. Tensors may outlive it, but must not be resized then. One at a time in a
// process; not while other threads make meta tensors.
class CountingAllocator {
 public:
  CountingAllocator();
  ~CountingAllocator();
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  std::int64_t now() const;
  std::int64_t peak() const;
  // As if `bytes` more were held for a moment.
  void count_moment(std::int64_t bytes);
  // The peak starts again from what is held now.
  void reset_peak();

 private:
  struct Count;
  struct Allocation;
  class Front;
  c10::Allocator* behind_;
  std::unique_ptr<Front> front_;
};

}  // namespace strata::runtime
