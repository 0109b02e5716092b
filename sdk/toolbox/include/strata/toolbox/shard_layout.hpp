#pragma once
#include <ATen/core/Tensor.h>
#include <strata/buffer.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// How a flat parameter is sharded: it is cut into pieces, and each piece into equal parts, one per rank; rank r owns
// part r of every piece. One collective moves one piece, in place and without a copy. Only the last piece is padded, so
// a buffer of whole() elements starts with the flat parameter itself.
class ShardLayout {
 public:
  struct Piece {
    std::int64_t begin = 0;  // offset in elements in the whole buffer
    std::int64_t part = 0;   // elements of each rank's part, padding included
  };

  ShardLayout() = default;
  // Cuts pieces of at most `piece_elements`, but at least 8 elements per rank.
  ShardLayout(std::int64_t elements, int ranks, std::int64_t piece_elements) : elements_(elements), ranks_(ranks) {
    const std::int64_t granule = alignment * ranks;
    const std::int64_t longest = std::max(granule, piece_elements / granule * granule);
    for (std::int64_t begin = 0; begin < elements; begin += longest) {
      const std::int64_t length = std::min(longest, elements - begin);
      pieces_.push_back({begin, ranks == 1 ? length : (length + granule - 1) / granule * alignment});
    }
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Elements of the whole buffer, padding included, and of one rank's parts of all pieces.
  std::int64_t whole() const { return pieces_.back().begin + pieces_.back().part * ranks_; }
  std::int64_t part() const { return whole() / ranks_; }

  // Views. piece_of: one piece of a tensor of whole() elements. part_of: a rank's part of that piece in a buffer.
  // stored_part: the same part in a buffer of part() elements, which holds one rank's parts one after the other.
  at::Tensor piece_of(const at::Tensor& whole, const Piece& piece) const {
    return whole.narrow(0, piece.begin, piece.part * ranks_);
  }
  BufferRange part_of(Buffer& whole, const Piece& piece, int rank) const {
    return {&whole, piece.begin + rank * piece.part, piece.part};
  }
  BufferRange stored_part(Buffer& parts, const Piece& piece) const {
    return {&parts, piece.begin / ranks_, piece.part};
  }

  // The range of the flat parameter in a rank's part, without padding; may be empty.
  std::pair<std::int64_t, std::int64_t> owned(const Piece& piece, int rank) const {
    const std::int64_t begin = std::min(elements_, piece.begin + rank * piece.part);
    return {begin, std::min(elements_, begin + piece.part)};
  }

 private:
  static constexpr std::int64_t alignment = 8;  // elements: every part is aligned for vector loads
  std::int64_t elements_ = 0;
  int ranks_ = 1;
  std::vector<Piece> pieces_;
};

}  // namespace strata::toolbox
