#pragma once
#include <strata/partitioner.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Option of partitioners that sum gradients by RowSums.
#define STRATA_SPARSE_OPTION(OPTION)                                                                               \
  OPTION(                                                                                                          \
      boolean, sparse_gradients, false, "", "",                                                                    \
      "Sparse reduction of the embedding's gradient: only rows that a token of the step touched on any rank are "  \
      "sent, if that saves bytes. The result is bit-identical. Useful if the vocabulary is large relative to the " \
      "tokens of a step. `strata plan` counts all rows. Not for tied embeddings, whose gradient touches every row.")

namespace strata::toolbox {

// An all-reduce of some rows, or the decision that the dense sum sends no more: its memory is then held equally long,
// so that a plan is right for any tokens.
struct RowExchange {
  bool travels() const { return rows.defined(); }

  Pending pending;
  at::Tensor values;  // [rows, width], the values to sum
  at::Tensor rest;    // elements after the last whole row
  at::Tensor rows;    // int64, ascending: rows that travel; undefined: the dense sum is due
  at::Tensor sent;    // rows that travel, then the rest
  Slot* slot = nullptr;
};

// Sums over ranks of the gradients of the model's first layer, whose input is tokens: a step touches few rows of its
// embedding. Every rank sends one bit per row, set if its gradient has a set bit in the row; all then sum the union,
// gathered into one piece, by an all-reduce, in rank order as always. Untouched rows are +0 on every rank, and so is
// their sum: the result equals the dense sum, bit for bit.
//
// Bytes that one of N ranks sends: (N-1)/8 per row of the table, and then 2 (N-1)/N of the rows touched, or the dense
// sum if that is no more. So a step sends at most the dense sum and those bits, the number in a plan. On a GPU the host
// waits for the bits; the first layer's backward is the last.
class RowSums {
 public:
  // Finds the embedding. Returns text to log, or "". Throws UserError if the first layer's embedding is tied.
  std::string attach(PartitionContext& context, Group& group);
  // True if the gradient of this flat parameter may be summed by rows.
  bool takes(const FlatParameter& flat) const { return width_of(flat) > 0; }
  // Starts the sum of `values`, neighbouring elements of the flat parameter's gradient; finish() writes it into them.
  // If the dense sum sends no more, returns an exchange that does not travel: the caller makes the dense sum and calls
  // finish() too. `scatters`: the dense sum is a reduce-scatter, of half the bytes. Empty without a whole row. Equal on
  // all ranks. [collective]
  std::optional<RowExchange> start(const FlatParameter& flat, const at::Tensor& values, bool scatters);
  void finish(RowExchange& exchange);
  // Waits and releases the slot, after an error.
  void drop(RowExchange& exchange);

 private:
  std::int64_t width_of(const FlatParameter& flat) const {
    return widths_.empty() ? 0 : widths_[static_cast<std::size_t>(flat.info().id)];
  }
  at::Tensor touched_rows(const at::Tensor& values, const at::Tensor& bits) const;

  Group* group_ = nullptr;
  SlotPool* slots_ = nullptr;
  std::vector<std::int64_t> widths_;  // elements of a row, by flat parameter id; 0: dense. Empty: all are dense
};

}  // namespace strata::toolbox
