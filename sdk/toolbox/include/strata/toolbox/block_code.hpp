// Code of compressed collectives: numbers in 8 or 4 bits, symmetric, with a scale per block. The largest number of a
// block is exact, and the error of every other is at most half a step, 1/254 or 1/14 of the largest. A block with a
// number that is not finite decodes to numbers that are not finite, so that a precision policy detects it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strata::toolbox {

struct BlockFormat {
  int bits = 8;               // per number: 8 or 4
  std::int64_t block = 2048;  // elements per block, at most BlockCode::largest_block
};

// Layout of a message, which holds a range of elements: an fp32 scale per block, then the numbers, each block
// byte-aligned. Blocks begin at the range's begin and at `borders`, the begins of parameters, so that a bias is not
// rounded by the scale of the adjacent matrix; they end early there and at the end.
class BlockCode {
 public:
  static constexpr std::int64_t largest_block = 8000;

  // Makes the code of a range. `borders`: ascending, in the range; others are ignored.
  BlockCode(std::int64_t elements, const std::vector<std::int64_t>& borders, const BlockFormat& format);

  std::int64_t elements() const { return elements_; }
  // Returns the bytes of a message, a multiple of 4, and of the errors of encode().
  std::int64_t bytes() const { return bytes_; }
  std::int64_t error_bytes() const { return rounded(4 * blocks_ + elements_); }

  // Writes the message of `values`: fp32, bf16 or fp16, contiguous. Does nothing on meta tensors. With `errors`, the
  // errors of earlier messages are added to the values first, and then errors = beta x errors + (1 - beta) x error of
  // this message (LoCo, arXiv:2407.04480). Errors are stored in 8 bits, as a message of the same blocks; all zeros: no
  // errors. A block that is not finite has no errors afterwards.
  void encode(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors = {},
              double beta = 0.0) const;
  // Sums `count` messages, in fp32 and in their order, into `into` (=, with `add` +=). Message k begins k x `stride`
  // bytes after the beginning of `messages`.
  void decode_sum(const at::Tensor& messages, int count, std::int64_t stride, const at::Tensor& into,
                  bool add = false) const;

  // Encodes and decodes by libtorch's operators, for devices without a loop here: bit-equal on the CPU.
  void encode_by_operators(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors = {},
                           double beta = 0.0) const;
  void decode_sum_by_operators(const at::Tensor& messages, int count, std::int64_t stride, const at::Tensor& into,
                               bool add = false) const;

 private:
  // Consecutive blocks of equal length; the last may be shorter.
  struct Segment {
    std::int64_t begin = 0;  // elements
    std::int64_t elements = 0;
    std::int64_t first_block = 0;
    std::int64_t byte = 0;  // of its numbers, in a message
  };
  struct Block {
    std::int64_t begin = 0;
    std::int64_t elements = 0;
    std::int64_t byte = 0;
  };
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 3) / 4 * 4; }
  std::int64_t number_bytes(std::int64_t elements) const { return (elements * format_.bits + 7) / 8; }
  Block block(std::int64_t index) const;
  template <class Work>
  void each_block(const Work& work) const;
  template <class Work>
  void each_rows(const Work& work) const;
  template <class Element>
  void encode_elements(const Element* values, std::uint8_t* message, std::uint8_t* errors, float beta) const;
  template <class Element>
  void decode_elements(const std::uint8_t* messages, int count, std::int64_t stride, Element* into, bool add) const;
  void check(const at::Tensor& values, const at::Tensor& message, std::int64_t bytes) const;

  BlockFormat format_;
  std::int64_t elements_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace strata::toolbox
