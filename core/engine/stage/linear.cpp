#include "stage/linear.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <strata/error.hpp>

#include <utility>

#include "plugins/plugin_call.hpp"

namespace strata::stage {

namespace {

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

}  // namespace

// What a call computes. `gathers`: x is of the stream; `sums`: the product goes to the stream.
struct Linear::Call : torch::CustomClassHolder {
  Call(Linear& of, std::vector<Weight> by, bool begins, bool ends)
      : linear(of), weights(std::move(by)), gathers(begins), sums(ends) {}
  Linear& linear;
  std::vector<Weight> weights;
  bool gathers;
  bool sums;
};

class Linear::Node : public torch::autograd::Function<Linear::Node> {
 public:
  // `inputs`: x, then the weights.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                                                const c10::intrusive_ptr<Call>& call) {
    context->save_for_backward(inputs.vec());
    context->saved_data["call"] = at::IValue::make_capsule(call);
    context->set_materialize_grads(false);
    Linear& linear = call->linear;
    const at::Tensor x = call->gathers ? linear.wait(linear.gather(inputs[0]), false) : inputs[0];
    torch::autograd::variable_list products;
    for (const Weight& weight : call->weights) products.push_back(linear.product(x, weight, !call->sums));
    if (call->sums) {
      products[0] = linear.wait(linear.sum(products[0]), false);
      if (const Parameter* const bias = call->weights[0].bias) products[0].add_(bias->tensor);
    }
    return products;
  }

  // A collective runs beside the product that does not wait for it.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto held = context->saved_data["call"].toCapsule();
    const Call& call = static_cast<const Call&>(*held);
    Linear& linear = call.linear;
    const bool wants_input = context->needs_input_grad(0);
    Passage all_rows;
    const bool again = call.gathers && linear.batch_.sequence_parallel;
    if (again) all_rows = linear.gather(saved[0]);
    torch::autograd::variable_list dy(gradients.size());
    at::Tensor dx;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      dy[i] = rows_of(gradients[i]);
      if (call.sums && linear.batch_.sequence_parallel) dy[i] = linear.wait(linear.gather(dy[i]), false);
      if (!wants_input) continue;
      const at::Tensor part = plugins::plugin_call(linear.name_, "input_gradient()", linear.rank_, [&] {
        return linear.policy_.input_gradient(dy[i], *call.weights[i].weight);
      });
      dx = dx.defined() ? dx.add_(part) : part;
    }
    Passage summed;
    if (dx.defined() && call.gathers) summed = linear.sum(dx);
    const at::Tensor x = again ? linear.wait(std::move(all_rows), true) : rows_of(saved[0]);
    const auto trained = [](const Parameter* one) { return one != nullptr && one->info.trainable ? one : nullptr; };
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (dy[i].defined())
        linear.backward_of_weight({dy[i], x, trained(call.weights[i].weight), trained(call.weights[i].bias)});
    if (dx.defined() && call.gathers) dx = linear.wait(std::move(summed), true);
    torch::autograd::variable_list result(2 + call.weights.size());
    if (dx.defined()) result[0] = dx.view(saved[0].sizes());
    return result;
  }

  static torch::autograd::variable_list of(Linear& linear, const at::Tensor& x, const std::vector<Weight>& weights,
                                           bool gathers, bool sums) {
    torch::autograd::variable_list inputs{x};
    for (const Weight& one : weights) inputs.push_back(one.weight->tensor);
    return apply(at::TensorList(inputs), c10::make_intrusive<Call>(linear, weights, gathers, sums));
  }
};

at::Tensor Linear::linear(const at::Tensor& x, const Parameter& w, const Parameter* b) {
  return Node::of(*this, x, {{&w, b}}, false, false)[0];
}

Tensors Linear::column_linear(const at::Tensor& x, const std::vector<Weight>& weights) {
  return Node::of(*this, x, weights, along_tensor() != nullptr, false);
}

at::Tensor Linear::row_linear(const at::Tensor& x, const Weight& weight) {
  return Node::of(*this, x, {weight}, false, along_tensor() != nullptr)[0];
}

Linear::Passage Linear::gather(const at::Tensor& stream) const {
  if (!batch_.sequence_parallel) return {PendingRows(stream, {})};
  const std::int64_t bytes = batch_.rows() * stream.size(1) * static_cast<std::int64_t>(stream.element_size());
  return {gather_rows(*along_tensor(), stream, batch_.rows()), timed_bytes(stream, Collective::AllGather, bytes)};
}

Linear::Passage Linear::sum(const at::Tensor& all) const {
  const auto bytes = static_cast<std::int64_t>(all.nbytes());
  if (batch_.sequence_parallel)
    return {sum_into_parts(*along_tensor(), all), timed_bytes(all, Collective::ReduceScatter, bytes)};
  return {sum_rows(*along_tensor(), all), timed_bytes(all, Collective::AllReduce, bytes)};
}

std::int64_t Linear::timed_bytes(const at::Tensor& tensor, Collective collective, std::int64_t whole) const {
  return tensor.is_cpu() ? logical_bytes(collective, whole, along_tensor()->size()) : 0;
}

at::Tensor Linear::wait(Passage passage, bool beside) {
  if (passage.bytes == 0) return passage.rows.wait();
  const PartTimer timer(beside ? times_.beside : times_.alone);
  (beside ? times_.beside_bytes : times_.alone_bytes) += passage.bytes;
  return passage.rows.wait();
}

at::Tensor Linear::product(const at::Tensor& x, const Weight& weight, bool with_bias) {
  const bool adds = with_bias && weight.bias != nullptr;
  return plugins::plugin_call(name_, "linear()", rank_, [&] {
    return policy_.linear(x, *weight.weight, adds ? weight.bias->tensor : at::Tensor());
  });
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

void Linear::begin_gradient(const FlatParameter& flat) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
    at::Tensor& buffer = flat.parameters()[i].mutable_grad();
    if (flat.info().parameters[i].info.linear_only)
      unwritten_[flat.parameters()[i].unsafeGetTensorImpl()] = std::exchange(buffer, at::Tensor());
    else
      buffer.zero_();
  }
}

bool Linear::is_unwritten(const Parameter& parameter) const {
  return unwritten_.contains(parameter.tensor.unsafeGetTensorImpl());
}

void Linear::end_gradient(const FlatParameter& flat) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& parameter : flat.parameters())
    if (const auto unwritten = unwritten_.extract(parameter.unsafeGetTensorImpl())) unwritten.mapped().zero_();
}

// Where autograd made a gradient first, the parameter stays unwritten, and Executor::check_linear_only ends the run.
Linear::Target Linear::target_of(const Parameter& parameter) {
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (gradient.defined()) return {gradient, false};
  const auto unwritten = unwritten_.extract(parameter.tensor.unsafeGetTensorImpl());
  if (!unwritten) throw Bug("no buffer was lent for the gradient of {}", parameter.info.name);
  return {gradient = unwritten.mapped(), true};
}

void Linear::add(const WeightGradient& gradient) {
  const c10::NoGradGuard no_grad;
  if (gradient.weight != nullptr) {
    const Target target = target_of(*gradient.weight);
    plugins::plugin_call(name_, "add_weight_gradient()", rank_, [&] {
      policy_.add_weight_gradient(gradient.dy, gradient.x, gradient.weight->info, target.buffer, target.first);
    });
  }
  if (gradient.bias != nullptr) {
    const Target target = target_of(*gradient.bias);
    const at::Tensor sum = gradient.dy.sum(0);
    target.first ? target.buffer.copy_(sum) : target.buffer.add_(sum);
  }
}

}  // namespace strata::stage
