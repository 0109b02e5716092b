#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <strata/error.hpp>
#include <strata/rows.hpp>

namespace strata {

at::Tensor PendingRows::wait() {
  pending_.wait();
  return rows_;
}

PendingRows gather_rows(Group& group, const at::Tensor& part, std::int64_t rows) {
  strata_check(part.dim() == 2 && part.size(0) == rows_of_part(rows, group.size()), "a part has its share of the rows");
  const at::Tensor whole = at::empty({part.size(0) * group.size(), part.size(1)}, part.options());
  return {whole.narrow(0, 0, rows), group.all_gather(whole, part.contiguous())};
}

PendingRows sum_into_parts(Group& group, const at::Tensor& whole) {
  const std::int64_t length = rows_of_part(whole.size(0), group.size());
  const std::int64_t missing = length * group.size() - whole.size(0);
  const at::Tensor filled = missing == 0 ? whole.contiguous() : at::constant_pad_nd(whole, {0, 0, 0, missing});
  const at::Tensor part = at::empty({length, whole.size(1)}, whole.options());
  return {part, group.reduce_scatter(part, filled, ReduceOperation::Sum)};
}

PendingRows sum_rows(Group& group, const at::Tensor& whole) {
  const at::Tensor sum = whole.contiguous();
  return {sum, group.all_reduce(sum, ReduceOperation::Sum)};
}

}  // namespace strata
