// Matmuls of a layer with weights in the engine: the precision policy's three products and, if the weights are cut, the
// collectives of the tensor group under one node of the autograd graph. The gradients of weight and bias never pass
// through autograd: they are written or added to the buffers that BorrowGradient lent or, in a split backward, left for
// BackwardWeight.
#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>
#include <strata/rows.hpp>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "stage/seconds_since.hpp"
#include "stage/tensor_times.hpp"

namespace strata::stage {

// Groups of the ranks that compute each layer together, by axis; null: none.
class LayerGroups {
 public:
  Group* along(Axis axis) const { return groups_[static_cast<std::size_t>(axis)]; }
  void set(Axis axis, Group& group) { groups_[static_cast<std::size_t>(axis)] = &group; }

 private:
  std::array<Group*, axes.size()> groups_{};
};

// Weight gradients that a split backward left for later. A pointer is null if its gradient is not due.
struct WeightGradient {
  at::Tensor dy;  // [rows, out]
  at::Tensor x;   // [rows, in]
  const Parameter* weight = nullptr;
  const Parameter* bias = nullptr;
};

// The engine's ModelContext.
class Linear final : public ModelContext {
 public:
  // Binds a policy. `name`: its name in messages, "precision/bf16". Rows and columns of weights are cut over the tensor
  // group of `groups`, see [Note: tensor parallelism].
  Linear(PrecisionPolicy& policy, std::string name, int rank, const BatchShape& batch = {},
         const LayerGroups& groups = {})
      : policy_(policy), name_(std::move(name)), rank_(rank), batch_(batch), groups_(groups) {}

  const BatchShape& batch() const override { return batch_; }
  Group* group(Axis axis) override { return groups_.along(axis); }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b = nullptr) override;
  Tensors column_linear(const at::Tensor& x, const std::vector<Weight>& weights) override;
  at::Tensor row_linear(const at::Tensor& x, const Weight& weight) override;

  // True if the gradient of this parameter may be left for later: see ParameterInfo::linear_only.
  static bool can_wait(const Parameter& parameter);
  // Sets the list in which a backward leaves gradients that can wait; null: it leaves none.
  void leave_in(std::vector<WeightGradient>* list) { left_ = list; }
  // Returns the times of all collectives since the caller last cleared them.
  TensorTimes& times() { return times_; }
  // Runs a collective of `bytes` bytes without overlap, and times it unless `bytes` is 0.
  template <typename Function>
  void time_alone(std::int64_t bytes, Function&& collective) {
    if (bytes == 0) return collective();
    const PartTimer timer(times_.alone);
    times_.alone_bytes += bytes;
    collective();
  }
  // Prepares an empty gradient buffer of `flat`. For linear_only parameters the first product is written to it: until
  // then they have no .grad. The rest is cleared.
  void begin_gradient(const FlatParameter& flat);
  bool is_unwritten(const Parameter& parameter) const;
  // Clears ranges that no product has written.
  void end_gradient(const FlatParameter& flat);
  // Adds the gradients of weight and bias to their buffers. Throws Bug if none was lent.
  void add(const WeightGradient& gradient);

 private:
  class Node;
  struct Call;
  // Collective at a cut, in flight: gathers the stream's rows, or sums all rows into the
  // stream.
  struct Passage {
    PendingRows rows;
    std::int64_t bytes = 0;  // bytes that a rank sends; 0: nothing in flight, or the host does not wait for it
  };
  Passage gather(const at::Tensor& stream) const;
  Passage sum(const at::Tensor& all) const;
  Group* along_tensor() const { return groups_.along(Axis::Tensor); }
  std::int64_t timed_bytes(const at::Tensor& tensor, Collective collective, std::int64_t whole) const;
  // Waits for a collective. `beside`: a product ran since it was started.
  at::Tensor wait(Passage passage, bool beside);
  at::Tensor product(const at::Tensor& x, const Weight& weight, bool with_bias);
  void backward_of_weight(const WeightGradient& gradient);
  struct Target {
    at::Tensor buffer;
    bool first = false;  // true: the buffer is empty
  };
  Target target_of(const Parameter& parameter);

  PrecisionPolicy& policy_;
  std::string name_;
  int rank_;
  BatchShape batch_;
  LayerGroups groups_;
  std::vector<WeightGradient>* left_ = nullptr;
  std::map<const c10::TensorImpl*, at::Tensor> unwritten_;  // buffers by parameter
  TensorTimes times_;
};

}  // namespace strata::stage
