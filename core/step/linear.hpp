// The matmul of a layer with a weight, as the engine runs it: the precision policy's three products under one node of
// the autograd graph. The gradients of weight and bias never pass through autograd: they are added to the buffers that
// BorrowGradient lent or, in a backward that is split, left for BackwardWeight.
#pragma once
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>

#include <string>
#include <vector>

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

  at::Tensor operator()(const at::Tensor& x, const Parameter& w, const Parameter* b);
  // True if the gradient of this parameter may be left: see ParameterInfo::linear_only.
  static bool can_wait(const Parameter& parameter);
  // Until the next call, a backward leaves in `list` what can wait; null: it leaves nothing.
  void leave_in(std::vector<WeightGradient>* list) { left_ = list; }
  // Adds the gradients of weight and bias to their buffers. Throws Bug if none was lent.
  void add(const WeightGradient& gradient);

 private:
  class Node;
  void backward_of_weight(const WeightGradient& gradient);

  PrecisionPolicy& policy_;
  std::string name_;
  int rank_;
  std::vector<WeightGradient>* left_ = nullptr;
};

}  // namespace strata::runtime
