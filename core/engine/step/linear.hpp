// The matmuls of a layer with weights, as the engine runs them: the precision policy's three products and, where the
// weights are cut, the collectives of the tensor group under one node of the autograd graph. The gradients of weight
// and bias never pass through autograd: they are written or added to the buffers that BorrowGradient lent or, in a
// backward that is split, left for BackwardWeight.
#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>
#include <strata/rows.hpp>

#include <map>
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

// What layers see of the engine.
class Linear final : public ModelContext {
 public:
  // `name` is the policy's in messages, "precision/bf16". `tensor`: the group over which rows and columns of weights
  // are cut, see [Note: tensor parallelism]; null: none are.
  Linear(PrecisionPolicy& policy, std::string name, int rank, const BatchShape& batch = {}, Group* tensor = nullptr)
      : policy_(policy), name_(std::move(name)), rank_(rank), batch_(batch), tensor_(tensor) {}

  const BatchShape& batch() const override { return batch_; }
  Group* tensor_group() override { return tensor_; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b = nullptr) override;
  Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights) override;
  at::Tensor row_linear(const at::Tensor& x, const Weight& weight) override;

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
  // The buffer that was lent for the gradient of `flat` holds nothing yet. Of what is linear_only the first product
  // will be written to it: until then such a parameter has no .grad. The rest is cleared.
  void begin_gradient(const FlatParameter& flat);
  bool is_unwritten(const Parameter& parameter) const;
  // Clears what no product was written to.
  void end_gradient(const FlatParameter& flat);
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
  struct Target {
    at::Tensor buffer;
    bool first = false;  // it holds nothing yet
  };
  Target target_of(const Parameter& parameter);

  PrecisionPolicy& policy_;
  std::string name_;
  int rank_;
  BatchShape batch_;
  Group* tensor_;
  std::vector<WeightGradient>* left_ = nullptr;
  std::map<const c10::TensorImpl*, at::Tensor> unwritten_;  // by parameter
  TensorTimes times_;
};

}  // namespace strata::runtime
