// Functions that are x, or close to it, and do something else in backward.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

namespace strata {

// x, whose gradient is multiplied.
class TimesInBackward : public torch::autograd::Function<TimesInBackward> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * context->saved_data["factor"].toDouble(), {}};
  }
};

// x and half its tanh, which the layer keeps for backward: there it is that of the layer's last forward, another
// micro-batch's where forwards come between.
class PlusTanhOfLast : public torch::autograd::Function<PlusTanhOfLast> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, at::Tensor* last) {
    *last = x.tanh();
    context->saved_data["last"] = reinterpret_cast<std::int64_t>(last);
    return x + *last * 0.5;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor& last = *reinterpret_cast<const at::Tensor*>(context->saved_data["last"].toInt());
    return {gradients[0] * (last.square() * -0.5 + 1.5), {}};
  }
};

// x, whose gradient is written into a buffer of the layer's: that of one micro-batch over that of the one before.
class InOneBuffer : public torch::autograd::Function<InOneBuffer> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, at::Tensor* buffer) {
    context->saved_data["buffer"] = reinterpret_cast<std::int64_t>(buffer);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    at::Tensor& buffer = *reinterpret_cast<at::Tensor*>(context->saved_data["buffer"].toInt());
    if (!buffer.defined() || buffer.sizes() != gradients[0].sizes()) buffer = gradients[0].clone();
    return {buffer.copy_(gradients[0]), {}};
  }
};

}  // namespace strata
