#pragma once
#include <ATen/core/Tensor.h>
#include <strata/state_store.hpp>

#include <cstdint>
#include <map>

namespace strata::state {

// Ranges of one piece of memory: each is taken at the lowest place where it fits, so that the same calls in the same
// order give the same places, and what they need in all is known before there is any memory.
class Places {
 public:
  // Offloaded bytes move between memory that begins at multiples of this (OffloadLimits::alignment); also the unit.
  static constexpr std::int64_t alignment = 4096;

  std::int64_t take(std::int64_t bytes);  // where it begins
  void give_back(std::int64_t begin);     // what was taken there
  // The end of the highest range that was ever taken.
  std::int64_t extent() const { return extent_; }
  std::int64_t taken() const;  // bytes

 private:
  std::map<std::int64_t, std::int64_t> taken_;  // begin -> end
  std::int64_t extent_ = 0;
};

// Host memory for direct transfers: not initialised, in huge pages where the kernel has them, beginning at a multiple
// of the alignment. Throws EnvironmentError where there is not enough.
at::Tensor host_staging(std::int64_t bytes);

// The memory on the device into which buffers come from other tiers. It is one piece of the largest extent that any
// program of the run needs.
class Staging {
 public:
  explicit Staging(StateStore& store) : store_(store) {}
  ~Staging() { let_go(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Makes it at least so long; nothing is taken.
  void reserve(std::int64_t bytes);
  std::int64_t take(std::int64_t bytes);
  void give_back(std::int64_t begin) { places_.give_back(begin); }
  at::Tensor bytes(std::int64_t begin, std::int64_t count) const;
  std::int64_t taken() const { return places_.taken(); }

 private:
  void let_go();

  StateStore& store_;
  at::Tensor memory_;  // with room to begin at a multiple of the alignment
  std::int64_t begin_ = 0;
  std::int64_t counted_ = 0;  // of memory_, if the store did not make it
  std::int64_t length_ = 0;
  Places places_;
};

}  // namespace strata::state
