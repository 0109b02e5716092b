#pragma once
#include <ATen/core/Tensor.h>
#include <strata/buffer.hpp>
#include <strata/flat_parameter.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Shards of a flat parameter, seen by one rank. It is cut into pieces; one collective moves one piece, in place and
// without a copy, so a buffer of whole() elements starts with the flat parameter itself.
//
// [Note: what a rank owns where the optimizer updates elements together] A piece is one of two:
// - Cut into equal parts, one per rank: reduce-scattered and all-gathered. The parts are multiples of the unit
//   (ParameterSpan::unit) of all that lies in the piece. Small units, blocks, share a piece with their neighbours;
//   the last piece is then padded, and no other.
// - Of one owner: units that equal parts leave over, such as a matrix that is updated whole. Its gradient is reduced to
//   the owner, its new values are broadcast from there.
// For both kinds a rank sends (N-1)/N of the bytes, and the second needs no padding, however unequal the units are.
// Owners are chosen over all flat parameters, longest piece first, always the least loaded rank; for a tied one
// separately, because the stages that share it must choose alike.
class ShardLayout {
 public:
  struct Piece {
    std::int64_t begin = 0;     // offset in elements in the whole buffer
    std::int64_t elements = 0;  // padding included
    std::int64_t part = 0;      // elements of this rank: an equal part, all, or none
    std::int64_t stored = 0;    // offset of this rank's part in a buffer of part() elements
    bool in_parts = true;
    int owner = 0;  // owner of a piece that is not in parts
  };

  ShardLayout() = default;
  // Makes a layout without units, in pieces of at most `piece_elements`, but at least 8 elements per rank.
  ShardLayout(std::int64_t elements, int rank, int ranks, std::int64_t piece_elements);
  // Returns the layouts of flat parameters, in order. Pieces of one owner may be longer than `piece_elements`.
  static std::vector<ShardLayout> of(const std::vector<FlatParameter*>& flat, int rank, int ranks,
                                     std::int64_t piece_elements);

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Returns the elements of the whole buffer, padding included, and of this rank's parts of all pieces, possibly 0.
  std::int64_t whole() const { return pieces_.back().begin + pieces_.back().elements; }
  std::int64_t part() const { return pieces_.back().stored + pieces_.back().part; }

  // Returns views. piece_of: one piece of a tensor of whole() elements. part_of: this rank's part of a piece in such a
  // buffer. stored_part: this part in a buffer of part() elements, which holds the parts in a row.
  at::Tensor piece_of(const at::Tensor& whole, const Piece& piece) const {
    return whole.narrow(0, piece.begin, piece.elements);
  }
  BufferRange part_of(Buffer& whole, const Piece& piece) const {
    return {&whole, piece.begin + offset(piece), piece.part};
  }
  BufferRange stored_part(Buffer& parts, const Piece& piece) const { return {&parts, piece.stored, piece.part}; }

  // Returns the range of the flat parameter in this rank's part, without padding; may be empty.
  std::pair<std::int64_t, std::int64_t> owned(const Piece& piece) const {
    const std::int64_t begin = std::min(elements_, piece.begin + offset(piece));
    return {begin, std::min(elements_, begin + piece.part)};
  }

 private:
  static constexpr std::int64_t alignment = 8;         // elements: parts without units suit vector loads
  static constexpr std::int64_t largest_block = 4096;  // largest unit, in elements, that shares a piece
  std::int64_t offset(const Piece& piece) const { return piece.in_parts ? rank_ * piece.part : 0; }
  void cut(const std::vector<ParameterSpan>& spans, std::int64_t piece_elements);
  void cut_in_parts(std::int64_t begin, std::int64_t end, std::int64_t unit, std::int64_t piece_elements, bool pad);
  void settle();  // sets parts and their offsets, once the owners are known

  std::int64_t elements_ = 0;
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<Piece> pieces_;
};

}  // namespace strata::toolbox
