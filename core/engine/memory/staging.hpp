#pragma once
#include <ATen/core/Tensor.h>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>

namespace strata::memory {

// Allocator of ranges in one piece of memory, always at the lowest place that fits: the same calls in the same order
// give the same places, so the total extent is known before memory is allocated.
class Places {
 public:
  // Alignment of memory for offloaded bytes (OffloadLimits::alignment); also the unit of sizes.
  static constexpr std::int64_t alignment = 4096;

  std::int64_t take(std::int64_t bytes);  // returns its begin
  void give_back(std::int64_t begin);     // frees the range taken at `begin`
  // Returns the end of the highest range ever taken.
  std::int64_t extent() const { return extent_; }
  std::int64_t taken() const;  // bytes

 private:
  std::map<std::int64_t, std::int64_t> taken_;  // begin -> end
  std::int64_t extent_ = 0;
};

// Allocates host memory for direct transfers: not initialised, in huge pages if the kernel has them, aligned. Throws
// EnvironmentError if there is not enough.
at::Tensor host_staging(std::int64_t bytes);

// Device memory for buffers that come from other tiers: one piece of the largest extent that any program of the run
// needs.
class Staging {
 public:
  explicit Staging(StateStore& store) : store_(store) {}
  ~Staging() { let_go(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Grows the memory to at least `bytes`; requires that no range is taken.
  void reserve(std::int64_t bytes);
  std::int64_t take(std::int64_t bytes);
  void give_back(std::int64_t begin) { places_.give_back(begin); }
  at::Tensor bytes(std::int64_t begin, std::int64_t count) const;
  std::int64_t taken() const { return places_.taken(); }

 private:
  void let_go();

  StateStore& store_;
  at::Tensor memory_;  // includes room for the alignment
  std::int64_t begin_ = 0;
  std::int64_t counted_ = 0;  // counted bytes of memory_, if the store did not allocate it
  std::int64_t length_ = 0;
  Places places_;
};

}  // namespace strata::memory
