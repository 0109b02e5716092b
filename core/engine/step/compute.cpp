// Forward and backward of one layer and micro-batch.
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <set>

#include "plugins/plugin_call.hpp"
#include "stage/seconds_since.hpp"
#include "step/executor.hpp"
#include "step/random_state.hpp"

namespace strata::step {

LayerOutput Executor::compute(stage::StageLayer& layer, const Tensors& input, int micro_batch,
                              const StepInput& input_of_step) {
  MicroBatch batch = input_of_step.batches[static_cast<std::size_t>(micro_batch)];
  batch.loss_seed = loss_seed_;
  batch.random_key = random_key(stage_.memory.tensors(), input_of_step.seed, input_of_step.step, layer.number);
  const LayerGenerator generator(stage_.memory.tensors(), input_of_step.seed, input_of_step.step, batch.sample,
                                 layer.number);
  LayerOutput output = plugins::plugin_call(
      stage_.plugins.model.name, [&] { return format("forward of {} (layer {})", layer.info.name, layer.number); },
      stage_.place.rank, [&] { return layer.layer->forward(input, batch); });
  if (!batch.asked_rows.defined()) check_figures(layer, output);
  return output;
}

void Executor::check_figures(const stage::StageLayer& layer, const LayerOutput& output) const {
  if (layer.number + 1 == stage_.layers.in_model() && !output.loss_sum.defined())
    throw Bug("{}: the last layer, {}, gave no loss_sum", stage_.plugins.model.name, layer.info.name);
  if (output.auxiliary_loss.defined() && output.auxiliary_loss.dim() != 0)
    throw Bug("{}: the auxiliary loss of {} has {} dimensions; it must have none: a sum over the micro-batch's tokens",
              stage_.plugins.model.name, layer.info.name, output.auxiliary_loss.dim());
  const std::vector<StatisticInfo>& described = layer.info.statistics;
  const auto info_of = [](const Statistic& statistic) { return statistic.info; };
  if (!std::ranges::equal(output.statistics, described, {}, info_of))
    throw Bug("{}: {} returns {} statistics, which are not the {} that describe() lists; return those, in their order",
              stage_.plugins.model.name, layer.info.name, output.statistics.size(), described.size());
  for (const Statistic& statistic : output.statistics)
    if (!statistic.value.defined() || statistic.value.dim() != 0 || !statistic.value.is_floating_point())
      throw Bug("{}: the statistic {} of {} is no floating-point tensor of 0 dimensions", stage_.plugins.model.name,
                statistic.info.name, layer.info.name);
}

// The ranks of a tensor group have the same figures, so its rank 0 counts them.
void Executor::count(const stage::StageLayer& layer, const LayerOutput& output) const {
  if (stage_.groups.tensor() != nullptr && stage_.groups.tensor()->rank() != 0) return;
  if (layer.number + 1 == stage_.layers.in_model()) sums_.add(stage::ForwardSums::loss, output.loss_sum);
  for (const Statistic& statistic : output.statistics) sums_.add(statistic, stage_.layers.statistics());
  if (!output.auxiliary_loss.defined()) return;
  sums_.add(stage::ForwardSums::auxiliary_loss, output.auxiliary_loss);
  sums_.sums.select(0, stage::ForwardSums::auxiliary_losses).add_(1);
}

void Executor::forward(const program::Instruction& instruction, const StepInput& input) {
  stage::StageLayer& layer = stage_.layers.of(instruction.layer);
  Passage passage;
  if (layer.number > 0) {  // what the layer before gave, or what arrived from its stage
    const stage::PartTimer timer(times_.pipeline);
    passage.inputs = ActivationStore::take(activations_.forward, {layer.number, instruction.micro_batch}, "the input");
  }
  const stage::PartTimer timer(times_.forward);
  const c10::AutoGradMode grad_mode(!instruction.recompute && !instruction.evaluates);
  LayerOutput output = compute(layer, passage.inputs.tensors(), instruction.micro_batch, input);
  const bool gives_logits = input.batches[static_cast<std::size_t>(instruction.micro_batch)].asked_rows.defined();
  if (!gives_logits) count(layer, output);
  output.statistics.clear();  // values may hold parts of the graph
  if (layer.number + 1 < stage_.layers.in_model()) {
    if (output.activations.empty())
      throw Bug("{}: {} gave no activations for the next layer", stage_.plugins.model.name, layer.info.name);
    activations_.forward[{layer.number + 1, instruction.micro_batch}].tensors =
        Held(stage_.memory.store(), detached(output.activations, layer.number >= stage_.layers.first_trainable()));
  } else if (gives_logits) {
    logits_ = output.logits;
  } else {
    micro_batch_loss_ = output.loss_sum.detach();
  }
  if (instruction.evaluates) return;
  if (layer.number < stage_.layers.first_trainable())
    passage = Passage();  // no backward will ask for it
  else if (!instruction.recompute)
    passage.output = std::move(output);
  else if (layer.number > 0)
    keep_inputs(instruction, passage);
  activations_.passages.insert_or_assign({layer.number, instruction.micro_batch}, std::move(passage));
}

// [Note: One layer's backward] autograd runs from the layer's outputs to its inputs and parameters and no further.
// Parameters accumulate in place into the views that BorrowGradient set as their .grad: no second copy of a gradient
// exists, bf16 parameters add into fp32 buffers, and a parameter that took no part adds nothing.
void Executor::backward(const program::Instruction& instruction, const StepInput& input) {
  stage::StageLayer& layer = stage_.layers.of(instruction.layer);
  const ActivationStore::Key key{layer.number, instruction.micro_batch};
  auto node = activations_.passages.extract(key);
  if (node.empty()) throw Bug("the backward of {} comes before its forward", layer.info.name);
  Passage passage = std::move(node.mapped());
  if (instruction.recompute && layer.number > 0) bring_inputs(instruction, passage);
  const bool is_loss = layer.number + 1 == stage_.layers.in_model();
  Held gradients;
  if (!is_loss) {
    const stage::PartTimer timer(times_.pipeline);
    gradients = ActivationStore::take(activations_.backward, key, "the gradient of the output");
  }
  ActivationStore::finish(activations_.activation_sends, key);  // the gradient came back, so the output had arrived
  const stage::PartTimer timer(times_.backward);
  const c10::AutoGradMode grad_mode(true);
  Tensors leaves;
  for (const Parameter* parameter : layer.layer->parameters())
    if (parameter->info.trainable) leaves.push_back(parameter->tensor);
  for (const at::Tensor& tensor : passage.inputs.tensors())
    if (tensor.requires_grad()) leaves.push_back(tensor);
  if (instruction.recompute && !leaves.empty())
    passage.output = compute(layer, passage.inputs.tensors(), instruction.micro_batch, input);
  Tensors outputs;
  Tensors seeds;
  const auto seed = [&](const at::Tensor& loss) {
    outputs.push_back(loss);
    seeds.push_back(loss_seed_.to(loss.scalar_type()));
  };
  if (is_loss && !leaves.empty()) seed(passage.output.loss_sum);
  if (const at::Tensor& loss = passage.output.auxiliary_loss; loss.defined() && loss.requires_grad()) seed(loss);
  for (std::size_t i = 0; i < passage.output.activations.size() && !is_loss; ++i) {
    if (!passage.output.activations[i].requires_grad()) continue;
    outputs.push_back(passage.output.activations[i]);
    seeds.push_back(gradients.tensors().at(i));
  }
  LeftGradients left;
  stage_.layers.linear().leave_in(instruction.op == program::Op::BackwardInput ? &left.products : nullptr);
  if (!outputs.empty() && !leaves.empty())
    plugins::plugin_call(
        stage_.plugins.model.name, [&] { return format("backward of {} (layer {})", layer.info.name, layer.number); },
        stage_.place.rank,
        [&] { torch::autograd::backward(outputs, seeds, /*retain_graph=*/false, /*create_graph=*/false, leaves); });
  check_linear_only(layer, instruction.op == program::Op::BackwardInput);
  if (instruction.op == program::Op::BackwardInput) keep_for_weights(key, std::move(left));
  if (layer.number == 0) return;
  Tensors to_previous;
  for (const at::Tensor& tensor : passage.inputs.tensors()) {
    at::Tensor gradient = tensor.grad();
    to_previous.push_back(gradient.defined() ? gradient : at::zeros_like(tensor.detach()));
  }
  if (layer.number < stage_.layers.first_trainable())  // nobody needs a gradient, and the program passes one on
    for (const TensorShape& shape : stage_.layers.model()[static_cast<std::size_t>(layer.number - 1)].outputs)
      to_previous.push_back(
          at::zeros(shape.extents, at::TensorOptions().dtype(shape.dtype).device(stage_.memory.tensors())));
  activations_.backward[{layer.number - 1, instruction.micro_batch}].tensors =
      Held(stage_.memory.store(), std::move(to_previous));
}

// The parameter of a product has no .grad before that product has written its gradient buffer, nor while the product is
// deferred. A .grad at that point comes from autograd: the layer also uses the parameter outside of the product.
void Executor::check_linear_only(const stage::StageLayer& layer, bool splits) const {
  for (const Parameter* parameter : layer.layer->parameters())
    if (parameter->tensor.grad().defined() &&
        ((splits && stage::Linear::can_wait(*parameter)) || stage_.layers.linear().is_unwritten(*parameter)))
      throw UserError(
          "{}: {} declares {} linear_only and uses it outside of ModelContext::linear, so its gradient would be wrong; "
          "leave linear_only out",
          stage_.plugins.model.name, layer.info.name, parameter->info.name);
}

// A product's tensors may be views of one memory, such as the gradient of a sum: each memory counts once.
void Executor::keep_for_weights(ActivationStore::Key key, LeftGradients left) {
  Tensors kept;
  std::set<const c10::StorageImpl*> memories;
  for (const stage::WeightGradient& product : left.products)
    for (const at::Tensor& tensor : {product.dy, product.x})
      if (memories.insert(tensor.storage().unsafeGetStorageImpl()).second) kept.push_back(tensor);
  left.tensors = Held(stage_.memory.store(), std::move(kept));
  activations_.left_gradients.insert_or_assign(key, std::move(left));
}

void Executor::backward_of_weights(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.backward);
  auto node = activations_.left_gradients.extract({instruction.layer, instruction.micro_batch});
  if (node.empty())
    throw Bug("the weight gradients of {} are computed before those of its input",
              stage_.layers.of(instruction.layer).info.name);
  for (const stage::WeightGradient& gradient : node.mapped().products) stage_.layers.linear().add(gradient);
}

}  // namespace strata::step
