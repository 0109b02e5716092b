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

RowGroups::RowGroups(const std::string& parameter, std::int64_t rows, std::int64_t size, const HeadNames& names)
    : singles(rows) {
  if (size == 0) return;
  std::int64_t unit = size;  // of which the rows must be a multiple
  if (matches(parameter, names.query_key)) {
    heads = rows / size, singles = 0;
  } else if (matches(parameter, names.by_head)) {
    unit = 3 * size;
    groups = rows / unit, heads = 2, singles = size;
  } else if (matches(parameter, names.by_kind)) {
    unit = 3 * size;
    heads = rows / unit * 2, singles = rows / 3;
  } else {
    return;
  }
  head_size = size;
  if (rows % unit != 0)
    throw UserError("optimizer adam_mini: head_size is " + std::to_string(size) + ", and " + parameter + " has " +
                    std::to_string(rows) + " rows, which must be a multiple of " + std::to_string(unit) +
                    "; give the rows of one head of the model, or 0 for one second moment per row");
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
