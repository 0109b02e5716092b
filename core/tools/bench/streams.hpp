#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/interleaved_timer.hpp"

namespace strata::bench {

// An array that a computation reads or writes.
struct Stream {
  std::int64_t bytes = 0;
  bool read = true;
  bool written = false;
  // Memory of the array; its contents are kept unless it is only written. Undefined, or less than a cache line:
  // separate memory.
  at::Tensor memory = {};
};

// The floor of a memory-bound computation over arrays larger than the caches: load once all that it reads, store once
// all that it writes, preferably in the memory of the computation itself, because equal pages at other places take
// other times. The fastest way depends on the processor, so passes() returns several: arrays interleaved in small or
// large blocks or one after the other, in sections or not, with and without non-temporal stores, and plain copies if
// possible. They use libtorch's threads, as the plugin does.
class Streams {
 public:
  explicit Streams(const std::vector<Stream>& streams);
  // The streams of a copy.
  static Streams of_copy(std::int64_t bytes) { return Streams({{bytes, true, false}, {bytes, false, true}}); }
  // Returns functions that each make one pass; they refer to this object.
  std::vector<Work> passes() const;
  // Returns the bytes that one pass loads and stores.
  double bytes() const;
  // Returns "one pass over 7 streams"; an array that is read and written counts twice.
  std::string name() const;

 private:
  struct Array {
    Stream stream;
    at::Tensor memory;
    std::int64_t lines;       // whole cache lines
    double of_longest = 1.0;  // lines over those of the longest
    float* begin() const { return static_cast<float*>(memory.data_ptr()); }
  };

  // Way in which a pass walks through the arrays.
  struct Way {
    std::int64_t lines = 0;    // lines of the longest array before switching to the next array
    bool sections = false;     // walk four sections of each array in parallel
    bool past_caches = false;  // non-temporal stores to arrays that are only written
    bool together = false;     // the longest arrays line by line, all of them at the same line
  };

  void pass(const Way& way) const;
  std::int64_t line_of(const Array& array, std::int64_t index) const;
  bool is_copy() const;
  using CopyBy = void (*)(float* to, const float* from, std::int64_t lines);
  void copy(std::int64_t lines_at_a_time, CopyBy copy_by) const;

  std::vector<Array> arrays_;
  std::int64_t longest_ = 0;  // lines
};

}  // namespace strata::bench
