// Which rows of a matrix share one number of Adam-mini's second moment.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata::adam_mini {

// Patterns of the names of weights that hold heads of attention, as fnmatch(3) reads them, separated by spaces.
struct HeadNames {
  std::string query_key;  // rows of q or of k only
  std::string by_head;    // rows of q, k and v of a head, then of the next
  std::string by_kind;    // all rows of q, then of k, then of v
};

// The rows of a weight are equal groups: each begins with `heads` blocks of `head_size` rows, and then come `singles`
// rows, each a block of its own.
struct RowGroups {
  std::int64_t groups = 1;
  std::int64_t heads = 0;
  std::int64_t head_size = 1;
  std::int64_t singles = 0;

  // head_size 0: every row is a block. Throws UserError if heads of that size do not fill the rows.
  RowGroups(const std::string& parameter, std::int64_t rows, std::int64_t head_size, const HeadNames& names);

  std::int64_t blocks() const { return groups * (heads + singles); }
  // [blocks] of [rows]: the sums over each block.
  at::Tensor sum(const at::Tensor& of_rows) const;
  // [rows] of [blocks].
  at::Tensor expand(const at::Tensor& of_blocks) const;
};

}  // namespace strata::adam_mini
