#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/interleaved_timer.hpp"

namespace strata::bench {

// One array that a computation goes through.
struct Stream {
  std::int64_t bytes = 0;
  bool read = true;
  bool written = false;
};

// The least that a computation over some arrays, too large for the caches, must do: bring in once what it reads, take
// out once what it writes. Which of several ways to do no more than that is the fastest depends on the processor, so
// passes() has them all: arrays in turns by small parts or large, or one after the other, in sections or not; what is
// only written with stores that leave the caches alone and without; and copies, where that is what it amounts to. On as
// many threads as libtorch has, on which a plugin's work runs too.
class Streams {
 public:
  explicit Streams(const std::vector<Stream>& streams);
  // What a copy reads and writes.
  static Streams of_copy(std::int64_t bytes) { return Streams({{bytes, true, false}, {bytes, false, true}}); }
  // One pass each. They refer to this.
  std::vector<Work> passes() const;
  // Bytes that one pass moves to and from memory.
  double bytes() const;
  // "one pass over 7 streams": an array that is read and written counts twice.
  std::string name() const;

 private:
  struct Array {
    at::Tensor lines;  // fp32, [lines, 16]: whole cache lines
    bool read = false;
    bool written = false;
  };

  // How a pass goes through the arrays.
  struct Way {
    std::int64_t lines = 0;    // of the longest array, before it is the next array's turn
    bool sections = false;     // each array's part in four sections side by side
    bool past_caches = false;  // stores to what is only written
  };

  void pass(const Way& way) const;
  bool is_copy() const;
  void copy(std::int64_t lines_at_a_time, bool past_caches) const;

  std::vector<Stream> streams_;
  std::vector<Array> arrays_;
  std::int64_t longest_ = 0;  // lines
};

}  // namespace strata::bench
