#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/toolbox/block_code.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Ranges of a flat parameter as compressed messages, which are all as long as the longest, so that a collective takes
// them. Bytes beside a range's numbers, bits/8 each: 4 per block, blocks beginning anew with each parameter, and what
// makes messages equally long multiples of 4.
class WireMessages {
 public:
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // elements [begin, end), padding included
  WireMessages(const FlatParameterInfo& flat, const Ranges& ranges, const BlockFormat& format);
  // One message per rank of a piece in parts, else one.
  static WireMessages of(const FlatParameterInfo& flat, const ShardLayout::Piece& piece, int ranks,
                         const BlockFormat& format);

  std::int64_t bytes() const { return bytes_; }              // of a message
  std::int64_t error_bytes() const { return error_bytes_; }  // of all ranges
  int ranges() const { return static_cast<int>(codes_.size()); }
  const BlockCode& code(int range) const { return codes_[static_cast<std::size_t>(range)]; }
  // Views: the message at a place; a range's elements of a tensor that begins with the first range; its errors, or
  // nothing of nothing.
  at::Tensor message(const at::Tensor& messages, int place) const { return messages.narrow(0, place * bytes_, bytes_); }
  at::Tensor values(const at::Tensor& all, int range) const {
    const auto [begin, end] = ranges_[static_cast<std::size_t>(range)];
    return all.narrow(0, begin - ranges_.front().first, end - begin);
  }
  at::Tensor errors(const at::Tensor& errors, int range) const;

 private:
  Ranges ranges_;
  std::vector<BlockCode> codes_;
  std::int64_t bytes_ = 0;
  std::int64_t error_bytes_ = 0;
};

}  // namespace strata::toolbox
