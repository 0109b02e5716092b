// Rows of a tensor sharded over the ranks of a group: each rank has an equal part, in order; the last parts are padded
// with rows of zeros.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>

namespace strata {

// Handle of rows in flight.
class STRATA_EXPORT [[nodiscard]] PendingRows {
 public:
  PendingRows() = default;
  PendingRows(at::Tensor rows, Pending pending) : rows_(std::move(rows)), pending_(std::move(pending)) {}
  // Waits as Pending::wait() does, and returns the rows.
  at::Tensor wait();

 private:
  at::Tensor rows_;
  Pending pending_;
};

// Returns the number of rows of each part, padding included.
inline std::int64_t rows_of_part(std::int64_t rows, int ranks) {
  return (rows + ranks - 1) / ranks;
}

// Gathers all rows, [rows, n], from the parts of all ranks, each [rows_of_part(), n]. [collective]
STRATA_EXPORT PendingRows gather_rows(Group& group, const at::Tensor& part, std::int64_t rows);
// Returns this rank's part of the sum over the ranks of `whole` [rows, n]; padding rows are zeros. [collective]
STRATA_EXPORT PendingRows sum_into_parts(Group& group, const at::Tensor& whole);
// Sums `whole` over the ranks, in place if it is contiguous. [collective]
STRATA_EXPORT PendingRows sum_rows(Group& group, const at::Tensor& whole);

}  // namespace strata
