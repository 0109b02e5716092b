// Rectangles of a parameter's rows that make up a piece, which may begin and end anywhere in a row. For a
// tensor-parallel rank's part of the parameter, rows and columns are those of the whole.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/optimizer.hpp>

#include <cstdint>
#include <vector>

namespace strata {

// Rectangle of a piece. Rows of a parameter are along its last dimension.
struct RowBlock {
  std::int64_t offset;  // first element, in the piece
  std::int64_t row;     // first row, among all rows
  std::int64_t column;  // first column
  std::int64_t rows;
  std::int64_t columns;

  // Returns the block's elements of a tensor of the piece: [rows, columns], a view.
  at::Tensor of(const at::Tensor& tensor) const {
    return tensor.narrow(0, offset, rows * columns).view({rows, columns});
  }
};

// Returns blocks of few elements, without a part's padding, so that the work on one stays in cache and takes little
// memory. No block has rows of two matrices of `matrix_rows`.
std::vector<RowBlock> row_blocks(const PieceInfo& piece, std::int64_t columns, std::int64_t matrix_rows);

}  // namespace strata
