// Which rows of a matrix share one number of Adam-mini's second moment.
#pragma once
#include <strata/optimizer.hpp>

#include <cstdint>
#include <string>

namespace strata::adam_mini {

// The rows of a weight are equal groups: each begins with `heads` blocks of `head_size` rows, and then come `singles`
// rows, each a block of its own.
struct RowGroups {
  std::int64_t groups = 1;
  std::int64_t heads = 0;
  std::int64_t head_size = 1;
  std::int64_t singles = 0;

  // `rows`: of the weight. Heads are those of q and k, in a weight of three stacked matrices, and of a weight whose
  // name fits one of the patterns of `query_key`, as fnmatch(3) reads them, separated by spaces. head_size 0: every row
  // is a block. Throws UserError if heads of that size do not fill the rows.
  RowGroups(const PieceInfo& piece, std::int64_t rows, std::int64_t head_size, const std::string& query_key);

  std::int64_t blocks() const { return groups * (heads + singles); }
  // [blocks] of [rows]: the sums over each block.
  at::Tensor sum(const at::Tensor& of_rows) const;
  // [rows] of [blocks].
  at::Tensor expand(const at::Tensor& of_blocks) const;
};

}  // namespace strata::adam_mini
