// The matmuls of a layer with weights, as the engine runs them: the precision policy's three products and, where the
// weights are cut, the collectives of the tensor group under one node of the autograd graph. The gradients of weight
// and bias never pass through autograd: they are added to the buffers that BorrowGradient lent or, in a backward that
// is split, left for BackwardWeight.
#pragma once
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>
#include <strata/rows.hpp>

#include <string>
#include <vector>

#include "step/seconds_since.hpp"
#include "step/tensor_times.hpp"

namespace strata::runtime {

// What a split backward computes after the gradient of its input. Pointers are null for what was not left.
struct WeightGradient {
  at::Tensor dy;  // [rows, out]
  at::Tensor x;   // [rows, in]
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
};

class Linear {
 public:
  // `name` is the policy's in messages, "precision/bf16".
  Linear(PrecisionPolicy& policy, std::string name, int rank) : policy_(policy), name_(std::move(name)), rank_(rank) {}

  // Rows and columns of weights are cut over this group from now on; see [Note: tensor parallelism].
  void cut_over(Group& tensor, const BatchShape& batch) {
    tensor_ = &tensor;
    rows_ = batch.rows();
    sequence_parallel_ = batch.sequence_parallel;
  }

  // As ModelContext's linear(), column_linear() and row_linear().
  at::Tensor operator()(const at::Tensor& x, const Parameter& w, const Parameter* b);
  Tensors by_columns(const at::Tensor& x, const std::vector<Weight>& weights);
  at::Tensor by_rows(const at::Tensor& x, const Weight& weight);

  // True if the gradient of this parameter may be left: see ParameterInfo::linear_only.
  static bool can_wait(const Parameter& parameter);
  // Until the next call, a backward leaves in `list` what can wait; null: it leaves nothing.
  void leave_in(std::vector<WeightGradient>* list) { left_ = list; }
  // Of all collectives since the caller last emptied it.
  TensorTimes& times() { return times_; }
  // Carries out a collective of so many bytes, 0 for one that is not timed, that nothing runs beside.
  template <typename Function>
  void time_alone(std::int64_t bytes, Function&& collective) {
    if (bytes == 0) return collective();
    const PartTimer timer(times_.alone);
    times_.alone_bytes += bytes;
    collective();
  }
  // Adds the gradients of weight and bias to their buffers. Throws Bug if none was lent.
  void add(const WeightGradient& gradient);

 private:
  class Node;
  struct Call;
  // The collectives at a cut: the stream's rows become all rows, and their gradients are summed; or the other way
  // round.
  struct Passage {
    PendingRows rows;
    std::int64_t bytes = 0;  // that a rank sends; 0: nothing is under way, or the host does not wait for it
  };
  Passage gather(const at::Tensor& stream) const;
  Passage sum(const at::Tensor& all) const;
  std::int64_t timed_bytes(const at::Tensor& tensor, Collective collective, std::int64_t whole) const;
  // `beside`: a product ran since it was started.
  at::Tensor wait(Passage passage, bool beside);
  at::Tensor product(const at::Tensor& x, const Weight& weight, bool with_bias);
  void backward_of_weight(const WeightGradient& gradient);

  PrecisionPolicy& policy_;
  std::string name_;
  int rank_;
  Group* tensor_ = nullptr;  // null: no weight is cut
  std::int64_t rows_ = 0;
  bool sequence_parallel_ = false;
  std::vector<WeightGradient>* left_ = nullptr;
  TensorTimes times_;
};

}  // namespace strata::runtime
