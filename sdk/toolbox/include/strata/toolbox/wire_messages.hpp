#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/toolbox/block_code.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Messages of consecutive ranges of a flat parameter, all as long as the longest, so that a collective can move
// them.
class RangeMessages {
 public:
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // elements [begin, end), padding included
  // Returns one range per rank for a piece in parts, otherwise one range.
  static Ranges ranges_of(const ShardLayout::Piece& piece, int ranks);
  virtual ~RangeMessages() = default;

  std::int64_t bytes() const { return bytes_; }  // bytes of a message, a multiple of 4
  int ranges() const { return static_cast<int>(ranges_.size()); }
  // Returns views: the message at a place; a range's elements of a tensor that begins with the first range.
  at::Tensor message(const at::Tensor& messages, int place) const { return messages.narrow(0, place * bytes_, bytes_); }
  at::Tensor values(const at::Tensor& all, int range) const {
    const auto [begin, end] = ranges_[static_cast<std::size_t>(range)];
    return all.narrow(0, begin - ranges_.front().first, end - begin);
  }

  // Notes new values of a range, on the rank that owns it.
  virtual void measure(int /*range*/, const at::Tensor& /*values*/) const {}
  virtual void encode(int range, const at::Tensor& values, const at::Tensor& message) const = 0;
  virtual void decode(int range, const at::Tensor& message, const at::Tensor& values) const = 0;

 protected:
  explicit RangeMessages(Ranges ranges) : ranges_(std::move(ranges)) {}

  Ranges ranges_;
  std::int64_t bytes_ = 0;
};

// Messages of blocks with a scale each. Bytes in addition to a range's numbers of bits/8 bytes: 4 per block, with a new
// block at each parameter, and padding to equally long multiples of 4.
class WireMessages final : public RangeMessages {
 public:
  WireMessages(const FlatParameterInfo& flat, const Ranges& ranges, const BlockFormat& format);

  std::int64_t error_bytes() const { return error_bytes_; }  // bytes of the errors of all ranges
  const BlockCode& code(int range) const { return codes_[static_cast<std::size_t>(range)]; }
  // Returns a view of a range's errors; undefined if `errors` is.
  at::Tensor errors(const at::Tensor& errors, int range) const;
  void encode(int range, const at::Tensor& values, const at::Tensor& message) const override {
    code(range).encode(values, message);
  }
  void decode(int range, const at::Tensor& message, const at::Tensor& values) const override {
    code(range).decode_sum(message, 1, 0, values);
  }

 private:
  std::vector<BlockCode> codes_;
  std::int64_t error_bytes_ = 0;
};

}  // namespace strata::toolbox
