// A piece, which may begin and end anywhere in a row, as rectangles of its parameter's rows. Where a tensor-parallel
// rank has a part of the parameter, rows and columns are those of the whole.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/optimizer.hpp>

#include <cstdint>
#include <vector>

namespace strata {

// Rows of a parameter are along its last dimension.
struct RowBlock {
  std::int64_t offset;  // of its first element, in the piece
  std::int64_t row;     // the first, among all rows
  std::int64_t column;  // the first
  std::int64_t rows;
  std::int64_t columns;

  // Its elements of a tensor of the piece: [rows, columns], a view.
  at::Tensor of(const at::Tensor& tensor) const {
    return tensor.narrow(0, offset, rows * columns).view({rows, columns});
  }
};

// Blocks of few elements, without a part's padding, so that what is computed for one stays in cache and takes little
// memory. None has rows of two matrices of `matrix_rows`.
std::vector<RowBlock> row_blocks(const PieceInfo& piece, std::int64_t columns, std::int64_t matrix_rows);

}  // namespace strata
