#include "head_blocks.hpp"

#include <ATen/ops/cat.h>
#include <fnmatch.h>
#include <strata/error.hpp>

#include <sstream>

namespace strata::adam_mini {
namespace {

bool matches(const std::string& name, const std::string& patterns) {
  std::istringstream list(patterns);
  for (std::string pattern; list >> pattern;)
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  return false;
}

}  // namespace

RowGroups::RowGroups(const PieceInfo& piece, std::int64_t rows, std::int64_t size, const std::string& query_key)
    : singles(rows) {
  if (size == 0) return;
  const bool stacked = piece.stacked.rows > 0 && piece.stacked.matrices == 3;
  if (!stacked && !matches(piece.parameter, query_key)) return;
  const std::int64_t together = stacked ? piece.stacked.rows : rows;  // neighbours of one matrix
  if (together % size != 0)
    throw UserError(
        "optimizer adam_mini: head_size is {}, and {} has {}{} in sequence, which must be a multiple of it; give the "
        "number of rows of one head, or 0 for one second moment per row",
        size, piece.parameter, together, stacked ? " rows of q" : " rows");
  head_size = size;
  heads = together / size, singles = 0;
  if (stacked) groups = rows / (3 * together), heads *= 2, singles = together;
}

at::Tensor RowGroups::sum(const at::Tensor& of_rows) const {
  if (heads == 0) return of_rows;
  const at::Tensor group = of_rows.view({groups, heads * head_size + singles});
  const at::Tensor of_heads = group.narrow(1, 0, heads * head_size).reshape({groups, heads, head_size}).sum(2);
  return at::cat({of_heads, group.narrow(1, heads * head_size, singles)}, 1).reshape(-1);
}

at::Tensor RowGroups::expand(const at::Tensor& of_blocks) const {
  if (heads == 0) return of_blocks;
  const at::Tensor group = of_blocks.view({groups, heads + singles});
  const at::Tensor of_heads = group.narrow(1, 0, heads).unsqueeze(2).expand({groups, heads, head_size});
  return at::cat({of_heads.reshape({groups, heads * head_size}), group.narrow(1, heads, singles)}, 1).reshape(-1);
}

}  // namespace strata::adam_mini
