#pragma once
#include <strata/partitioner.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// An option of partitioners that sum gradients by RowSums.
#define STRATA_SPARSE_OPTION(OPTION)                                                                                \
  OPTION(boolean, sparse_gradients, false, "", "",                                                                  \
         "Reduce only the rows of the embedding's gradient that a token of the step touched on any rank, if that "  \
         "sends fewer bytes. The result is bit-identical. Useful for a vocabulary that is large relative to the "   \
         "tokens of a step. Each step first exchanges one bit per row; `strata plan` shows the maximum, all rows. " \
         "Refused for tied embeddings, because the head's gradient touches every row.")

namespace strata::toolbox {

// An all-reduce of which some rows travel, or that found that the dense sum sends no more: what it takes of memory
// then stays as long, so that a plan is right whatever the tokens are.
struct RowExchange {
  bool travels() const { return rows.defined(); }

  Pending pending;
  at::Tensor values;  // [rows, width], what is summed
  at::Tensor rest;    // what follows the last whole row
  at::Tensor rows;    // int64, ascending: those that travel; undefined: the dense sum is to be made
  at::Tensor sent;    // them and the rest, one after the other
  Slot* slot = nullptr;
};

// Sums over ranks of the gradients of the model's first layer, whose input are tokens: of its embedding a step touches
// few rows. Every rank tells the others which rows of its gradient have a bit that is set; all then sum the union,
// gathered into one piece, by an all-reduce, in the order of the ranks as ever. What no rank touched is +0 everywhere,
// and so is its sum: the result is that of the dense sum, bit for bit.
//
// Bytes that one of N ranks sends: (N-1)/8 per row of the table, and then 2 (N-1)/N of the rows touched, or the dense
// sum where that is no more. So a step sends at most the dense sum's and those bits, which is what a plan shows. On a
// GPU the host waits for the bits; the first layer's backward is the last.
class RowSums {
 public:
  // Gives what is to be logged, or nothing. Throws UserError where the first layer's embedding is tied.
  std::string attach(PartitionContext& context, Group& group);
  // Whether the gradient of this flat parameter may go by rows.
  bool takes(const FlatParameter& flat) const { return width_of(flat) > 0; }
  // Of `values`, neighbouring elements of the flat parameter's gradient: starts the sum, which finish() writes into
  // them; or one that does not travel, where the dense sum sends no more and is the caller's, which calls finish() all
  // the same. `scatters`: that is a reduce-scatter, of half the bytes. Nothing: not a whole row. Equal on all ranks.
  // [collective]
  std::optional<RowExchange> start(const FlatParameter& flat, const at::Tensor& values, bool scatters);
  void finish(RowExchange& exchange);
  // After an error: waits and gives the slot back.
  void drop(RowExchange& exchange);

 private:
  std::int64_t width_of(const FlatParameter& flat) const {
    return widths_.empty() ? 0 : widths_[static_cast<std::size_t>(flat.info().id)];
  }
  at::Tensor touched_rows(const at::Tensor& values, const at::Tensor& bits) const;

  Group* group_ = nullptr;
  SlotPool* slots_ = nullptr;
  std::vector<std::int64_t> widths_;  // elements of a row, by flat parameter id; 0: goes as a whole. Empty: all do
};

}  // namespace strata::toolbox
