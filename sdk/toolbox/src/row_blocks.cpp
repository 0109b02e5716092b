#include <strata/toolbox/row_blocks.hpp>

#include <algorithm>

namespace strata {

std::vector<RowBlock> row_blocks(const PieceInfo& piece, std::int64_t columns, std::int64_t matrix_rows) {
  constexpr std::int64_t most = 1 << 15;
  std::int64_t elements = 1;
  for (const std::int64_t extent : piece.shape) elements *= extent;
  const PartPlaces& places = piece.places;
  std::vector<RowBlock> blocks;
  for (std::int64_t at = piece.begin; at < piece.end;) {
    const std::int64_t whole = places.of(at), neighbours = std::min(places.neighbours(at), piece.end - at);
    if (whole >= elements) break;  // padding
    RowBlock block{at - piece.begin, whole / columns, whole % columns, 1, 0};
    block.columns = std::min({columns - block.column, neighbours, most});
    // A whole row, or the part's share of it: with those that follow in its matrix.
    const bool of_each_row = places.distance == columns && block.columns == places.length;
    if (of_each_row || block.columns == columns)
      block.rows = std::min({(of_each_row ? piece.end - at : neighbours) / block.columns,
                             matrix_rows - block.row % matrix_rows, std::max<std::int64_t>(most / block.columns, 1)});
    at += block.rows * block.columns;
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace strata
