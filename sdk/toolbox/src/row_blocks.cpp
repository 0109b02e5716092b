#include <strata/toolbox/row_blocks.hpp>

#include <algorithm>

namespace strata {

std::vector<RowBlock> row_blocks(const PieceInfo& piece, std::int64_t columns, std::int64_t matrix_rows) {
  constexpr std::int64_t most = 1 << 15;
  std::vector<RowBlock> blocks;
  for (std::int64_t at = piece.begin; at < piece.end;) {
    RowBlock block{at - piece.begin, at / columns, at % columns, 1, 0};
    block.columns = std::min({columns - block.column, piece.end - at, most});
    if (block.columns == columns)  // a whole row: with those that follow in its matrix
      block.rows = std::min({(piece.end - at) / columns, matrix_rows - block.row % matrix_rows,
                             std::max<std::int64_t>(most / columns, 1)});
    at += block.rows * block.columns;
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace strata
