// The rows of a tensor over the ranks of a group: each has an equal part of them, in order, and the last parts are
// filled up with rows of zeros where there are too few.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>

namespace strata {

// Rows that are on their way.
class STRATA_EXPORT [[nodiscard]] PendingRows {
 public:
  PendingRows() = default;
  PendingRows(at::Tensor rows, Pending pending) : rows_(std::move(rows)), pending_(std::move(pending)) {}
  // See Pending::wait().
  at::Tensor wait();

 private:
  at::Tensor rows_;
  Pending pending_;
};

inline std::int64_t rows_of_part(std::int64_t rows, int ranks) {
  return (rows + ranks - 1) / ranks;
}

// All `rows` rows from each rank's part [rows_of_part(), n]. [collective]
STRATA_EXPORT PendingRows gather_rows(Group& group, const at::Tensor& part, std::int64_t rows);
// This rank's part of the sum over the ranks of `whole` [rows, n]; its rows that are none are zeros. [collective]
STRATA_EXPORT PendingRows sum_into_parts(Group& group, const at::Tensor& whole);
// The sum over the ranks, in `whole` itself where it is contiguous. [collective]
STRATA_EXPORT PendingRows sum_rows(Group& group, const at::Tensor& whole);

}  // namespace strata
