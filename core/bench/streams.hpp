// defines: Stream, Streams
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata::bench {

// One array that a computation goes through.
struct Stream {
  std::int64_t bytes = 0;
  bool read = true;
  bool written = false;
};

// A triad of any number of arrays: one pass that reads those that are read, adds them up, and writes the sum to those
// that are written. What a computation over the same arrays can reach at most, with the same threads.
class Streams {
 public:
  explicit Streams(const std::vector<Stream>& streams);
  void pass() const;
  // Bytes that one pass moves to and from memory.
  double bytes() const;
  // "triad of 7 streams": an array that is read and written counts twice.
  std::string name() const;

 private:
  std::vector<Stream> streams_;
  std::vector<at::Tensor> arrays_;  // fp32
};

}  // namespace strata::bench
