// Numbers in 8 or 4 bits, as compressed collectives send them: symmetric, each block with a scale of its own, so that
// the largest of a block is kept and every other is off by at most half a step, 1/254 or 1/14 of the largest. A block
// with a number that is not finite decodes to nothing finite, so that a precision policy sees it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace strata::toolbox {

struct BlockFormat {
  int bits = 8;               // or 4
  std::int64_t block = 2048;  // elements of a block, at most BlockCode::largest_block
};

// A message holds a range of elements: an fp32 scale per block, then the numbers, each block's from a byte of its own
// on. Blocks begin at the range's begin and at `borders`, where parameters begin, so that a bias is not rounded by the
// scale of the matrix beside it; they end early there and at the end.
class BlockCode {
 public:
  static constexpr std::int64_t largest_block = 8000;

  // `borders`: ascending, in the range; others are ignored.
  BlockCode(std::int64_t elements, const std::vector<std::int64_t>& borders, const BlockFormat& format);

  std::int64_t elements() const { return elements_; }
  // Of a message, a multiple of 4; and of the errors of encode().
  std::int64_t bytes() const { return bytes_; }
  std::int64_t error_bytes() const { return rounded(4 * blocks_ + elements_); }

  // Writes the message of `values`: fp32, bf16 or fp16, contiguous. Nothing is done on meta tensors. With `errors`,
  // what earlier messages lost is added to the values first, and then errors = beta x errors + (1 - beta) x what this
  // message loses (LoCo, arXiv:2407.04480). Errors are kept in 8 bits, as a message of the same blocks; zeros are none.
  // A block that is not finite has none afterwards.
  void encode(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors = {},
              double beta = 0.0) const;
  // into = the sum of `count` messages, in fp32 and in their order, or into += that. They lie `stride` bytes apart from
  // the beginning of `messages` on.
  void decode_sum(const at::Tensor& messages, int count, std::int64_t stride, const at::Tensor& into,
                  bool add = false) const;

  // The same by libtorch's operators, for devices without a loop here: the same bits on the CPU.
  void encode_by_operators(const at::Tensor& values, const at::Tensor& message, const at::Tensor& errors = {},
                           double beta = 0.0) const;
  void decode_sum_by_operators(const at::Tensor& messages, int count, std::int64_t stride, const at::Tensor& into,
                               bool add = false) const;

 private:
  // Blocks of equal length one after the other, but for the last, which may be shorter.
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
