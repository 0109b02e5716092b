#include "step/linear.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/error.hpp>

#include <optional>

#include "plugin_host/plugin_call.hpp"

namespace strata::runtime {

namespace {

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

at::Tensor buffer_of(const Parameter& parameter) {
  at::Tensor buffer = parameter.tensor.grad();
  if (!buffer.defined()) throw Bug("no buffer was lent for the gradient of " + parameter.info.name);
  return buffer;
}

}  // namespace

class Linear::Node : public torch::autograd::Function<Linear::Node> {
 public:
  // `linear` and the parameters, as addresses: what autograd keeps of a call must be a tensor or a number.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, Linear* linear, const Parameter* weight,
                            const Parameter* bias) {
    context->save_for_backward({x, w});
    context->saved_data["products"] = reinterpret_cast<std::int64_t>(linear);
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(weight);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(bias);
    return plugin_call(linear->name_, "linear()", linear->rank_,
                       [&] { return linear->policy_.linear(x, w, b.value_or(at::Tensor())); });
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    auto& linear = *reinterpret_cast<Linear*>(context->saved_data["products"].toInt());
    const auto* weight = reinterpret_cast<const Parameter*>(context->saved_data["weight"].toInt());
    const auto* bias = reinterpret_cast<const Parameter*>(context->saved_data["bias"].toInt());
    const at::Tensor &x = saved[0], dy = rows_of(gradients[0]);
    at::Tensor dx;
    if (context->needs_input_grad(0))
      dx = plugin_call(linear.name_, "input_gradient()", linear.rank_,
                       [&] { return linear.policy_.input_gradient(dy, saved[1]).view(x.sizes()); });
    const auto trained = [](const Parameter* one) { return one != nullptr && one->info.trainable ? one : nullptr; };
    linear.backward_of_weight({dy, rows_of(x), trained(weight), trained(bias)});
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor Linear::operator()(const at::Tensor& x, const Parameter& w, const Parameter* b) {
  return Node::apply(x, w.tensor, b == nullptr ? std::optional<at::Tensor>() : std::optional<at::Tensor>(b->tensor),
                     this, &w, b);
}

bool Linear::can_wait(const Parameter& parameter) {
  return parameter.info.linear_only && parameter.info.trainable && parameter.info.tie.empty();
}

void Linear::backward_of_weight(const WeightGradient& gradient) {
  WeightGradient now = gradient, later = gradient;
  const auto split = [&](const Parameter*& first, const Parameter*& second) {
    const bool waits = left_ != nullptr && first != nullptr && can_wait(*first);
    (waits ? first : second) = nullptr;
  };
  split(now.weight, later.weight);
  split(now.bias, later.bias);
  if (later.weight != nullptr || later.bias != nullptr) left_->push_back(later);
  add(now);
}

void Linear::add(const WeightGradient& gradient) {
  const c10::NoGradGuard no_grad;
  if (gradient.weight != nullptr)
    plugin_call(name_, "add_weight_gradient()", rank_,
                [&] { policy_.add_weight_gradient(gradient.dy, gradient.x, buffer_of(*gradient.weight)); });
  if (gradient.bias != nullptr) buffer_of(*gradient.bias).add_(gradient.dy.sum(0));
}

}  // namespace strata::runtime
