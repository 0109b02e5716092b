#include "step/executor.hpp"
#include "step/own_exchange_host.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>

#include <set>

#include "group/stop_request.hpp"
#include "plugin_host/plugin_call.hpp"
#include "step/random_state.hpp"
#include "step/seconds_since.hpp"

namespace strata::runtime {

namespace {

// Cuts the graph: the next layer's input is a leaf of its own, which gets a gradient when something before it is
// trained.
Tensors detached(const Tensors& tensors, bool gradient) {
  Tensors leaves;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor leaf = tensor.detach();
    if (gradient && at::isFloatingType(leaf.scalar_type())) leaf.set_requires_grad(true);
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

}  // namespace

template <typename Function, typename Work>
void Executor::partition(Function&& function, Work&& work) {
  plugin_call(stage_.partitioner.name, std::forward<Function>(function), stage_.rank, std::forward<Work>(work));
}

void Executor::carry_out_and_show(const Instruction& instruction, const StepInput& input) {
  using namespace std::chrono;
  const auto now = [] { return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count(); };
  const double pipeline = times_.pipeline, tensor = stage_.linear->times().waited();
  InstructionTimes times{.step = input.step, .begin = now()};
  carry_out(instruction, input);
  times.end = now();
  if (is_compute(instruction.op)) times.waited = std::llround(1e9 * (times_.pipeline - pipeline));
  times.waited_for_tensor = std::llround(1e9 * (stage_.linear->times().waited() - tensor));
  see_instruction_(instruction, times);
}

// [Note: tokens that count] The seed divides by all tokens of the global batch, which every rank knows. How many of
// them count is known over the run with the norm, and corrects the loss scale then: where all do, by exactly 1.
void Executor::begin(const StepInput& input) {
  times_ = {};
  if (stage_.own_exchange != nullptr) stage_.own_exchange->begin(input.updates);
  stage_.linear->times() = {};
  loss_scale_ =
      plugin_call(stage_.precision.name, "loss_scale()", stage_.rank, [&] { return stage_.precision->loss_scale(); });
  loss_seed_ = at::full({}, loss_scale_ / static_cast<double>(input.tokens),
                        at::TensorOptions().dtype(at::kFloat).device(stage_.store->device()));
  loss_sums_ = ahead_ ? ahead_->loss_sums : LossSums::zeros(stage_.store->device());
  ahead_.reset();
  maxima_ = plugin_call(stage_.precision.name, "maxima()", stage_.rank, [&] { return stage_.precision->maxima(); });
  if (maxima_.defined()) maxima_.zero_();
  squares_ = at::zeros({static_cast<std::int64_t>(stage_.layout.flat.size())}, loss_sums_.options());
  measured_round_ = -1;
  assumed_ = assumed_wrongly_ = false;
  // Every update of the step takes an equal part of it, all of whose tokens count.
  if (const int updates = stage_.updates_within_step; updates > 0)
    stage_.scalars = {input.learning_rate,
                      input.updates,
                      at::full({}, updates / loss_scale_, stage_.scalar_options()),
                      at::ones({}, stage_.scalar_options()),
                      input.momentum,
                      input.seed};
}

StepOutcome Executor::finish(const StepInput& input) {
  activations_.finish_transfers();  // those of the next step too, so that it may be forgotten
  if (!ahead_) activations_.check_empty();
  loss_seed_ = at::Tensor();
  if (stage_.store->dry_run()) return {};
  at::Tensor totals;
  stage_.groups->wait_for_device([&] { totals = totals_.cpu(); });  // the step's one host synchronisation
  stage_.groups->does("between two steps");
  const double* const numbers = totals.const_data_ptr<double>();
  StepOutcome outcome{MeanLosses::of(numbers + 1)};
  outcome.times = times_;
  outcome.times.tensor = stage_.linear->times();
  outcome.made_again = assumed_wrongly_;
  outcome.stopped_by = counted_signal(numbers + 1 + LossSums::count);
  loss_scale_ *= static_cast<double>(outcome.valid_tokens) / static_cast<double>(input.tokens);
  const double updates = std::max(stage_.updates_within_step, 1);
  outcome.gradient_norm = static_cast<float>(std::sqrt(numbers[0] * updates) / loss_scale_);  // as norm() rounds
  outcome.finite = std::isfinite(outcome.gradient_norm);
  if (input.clip > 0.0 && outcome.finite)
    outcome.clip_factor = std::min(1.0, input.clip / (outcome.gradient_norm + 1e-6));
  return outcome;
}

void Executor::make_pending_updates(const Program& updates) {
  measured_round_ = -1;
  for (const Instruction& instruction : updates) carry_out(instruction, {});
  pending_ = false;
}

void Executor::evaluate(const Program& forwards, const StepInput& input, const at::Tensor& sums) {
  forget_ahead();
  evaluating_ = true;
  loss_sums_ = sums;
  for (const Instruction& instruction : forwards) carry_out(instruction, input);
  ActivationStore::finish_all(activations_.activation_sends);
  stage_.groups->does("evaluating");
  activations_.check_empty();
  loss_sums_ = at::Tensor();
  evaluating_ = false;
}

void Executor::carry_out(const Instruction& instruction, const StepInput& input) {
  stage_.groups->does(instruction);
  if (instruction.late && !pending_ && !stage_.store->dry_run()) return;  // no step came before, or its update is made
  switch (instruction.op) {
    case Op::Forward:
      return forward(instruction, input);
    case Op::Backward:
    case Op::BackwardInput:
      return backward(instruction, input);
    case Op::BackwardWeight:
      return backward_of_weights(instruction);
    case Op::SendActivation:
    case Op::SendGradient:
      return send(instruction);
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
      return receive(instruction);
    case Op::Prefetch: {
      const PartTimer timer(times_.gather);
      return partition([&] { return "prefetch(" + flat(instruction.flat_parameter).info().name + ")"; },
                       [&] { stage_.partitioner->prefetch(flat(instruction.flat_parameter), instruction.phase); });
    }
    case Op::Gather: {
      const PartTimer timer(times_.gather);
      FlatParameter& gathered = flat(instruction.flat_parameter);
      partition([&] { return "gather(" + gathered.info().name + ")"; },
                [&] {
                  stage_.partitioner->gather(gathered, instruction.phase);
                  if (gathered.residence() != Residence::Gathered) throw Bug("gather returned and did not bind it");
                });
      return;
    }
    case Op::Release:
      return partition([&] { return "release(" + flat(instruction.flat_parameter).info().name + ")"; },
                       [&] { stage_.partitioner->release(flat(instruction.flat_parameter), instruction.phase); });
    case Op::BorrowGradient:
      return borrow_gradient(instruction);
    case Op::Reduce:
      return reduce(instruction);
    case Op::Fetch:
    case Op::Await:
    case Op::Store:
    case Op::Settle:
      return move(instruction);
    case Op::FinishGradient:
      return finish_gradient(instruction.flat_parameter);
    case Op::SumReplicas:
      return sum_replicas(instruction.flat_parameter);
    case Op::SquareGradient:
      return square_gradient(instruction.flat_parameter);
    case Op::StartNorm:
      return start_norm(input, true);
    case Op::Norm:
      return norm(input);
    case Op::SaveState:
    case Op::RestoreState:
      return save_or_restore(instruction);
    case Op::Measure:
      return measure(instruction);
    case Op::SumStatistics:
      return sum_statistics(instruction.round);
    case Op::Update:
      return update(instruction);
    case Op::Publish: {
      const PartTimer timer(times_.optimizer);
      return partition([&] { return "publish(" + flat(instruction.flat_parameter).info().name + ")"; },
                       [&] { stage_.partitioner->publish(flat(instruction.flat_parameter)); });
    }
    case Op::Keep:
      return keep(instruction.flat_parameter);
    case Op::Stash:
      return stash(instruction);
    case Op::Bind:
      return bind(instruction);
    case Op::Drop:
      return drop(instruction);
  }
  throw Bug("unknown instruction");
}

void Executor::move(const Instruction& instruction) {
  const PartTimer timer(times_.offload);
  const state::Moved moved = moved_by(instruction);
  if (instruction.op == Op::Fetch) stage_.buffers->fetch(moved, instruction.contents);
  if (instruction.op == Op::Await) stage_.buffers->await(moved);
  if (instruction.op == Op::Store) stage_.buffers->store(moved, instruction.changed);
  if (instruction.op == Op::Settle) stage_.buffers->settle(moved);
}

LayerOutput Executor::compute(StageLayer& layer, const Tensors& input, int micro_batch,
                              const StepInput& input_of_step) {
  MicroBatch batch = input_of_step.batches[static_cast<std::size_t>(micro_batch)];
  batch.loss_seed = loss_seed_;
  batch.random_key = random_key(stage_.store->device(), input_of_step.seed, input_of_step.step, layer.number);
  seed_layer(stage_.store->device(), input_of_step.seed, input_of_step.step, batch.sample, layer.number);
  LayerOutput output = plugin_call(
      stage_.model_name,
      [&] { return "forward of " + layer.info.name + " (layer " + std::to_string(layer.number) + ")"; }, stage_.rank,
      [&] { return layer.layer->forward(input, batch); });
  if (output.auxiliary_loss.defined() && output.auxiliary_loss.dim() != 0)
    throw Bug(stage_.model_name + ": the auxiliary loss of " + layer.info.name + " has " +
              std::to_string(output.auxiliary_loss.dim()) +
              " dimensions; it must have none: a sum over the micro-batch's tokens");
  return output;
}

void Executor::forward(const Instruction& instruction, const StepInput& input) {
  StageLayer& layer = stage_.layer(instruction.layer);
  Passage passage;
  if (layer.number > 0) {  // what the layer before gave, or what arrived from its stage
    const PartTimer timer(times_.pipeline);
    passage.inputs = ActivationStore::take(activations_.forward, {layer.number, instruction.micro_batch}, "the input");
  }
  const PartTimer timer(times_.forward);
  const c10::AutoGradMode grad_mode(!instruction.recompute && !evaluating_);
  LayerOutput output = compute(layer, passage.inputs.tensors(), instruction.micro_batch, input);
  const auto count = [this](LossSums::Index sum, const at::Tensor& loss) {
    if (stage_.tensor != nullptr && stage_.tensor->rank() != 0) return;  // which has the same
    const c10::NoGradGuard no_grad;
    loss_sums_.select(0, sum).add_(loss.detach());
  };
  if (output.auxiliary_loss.defined()) {
    count(LossSums::auxiliary_loss, output.auxiliary_loss);
    loss_sums_.select(0, LossSums::auxiliary_losses).add_(1);
  }
  if (layer.number + 1 < stage_.layers_in_model) {
    if (output.activations.empty())
      throw Bug(stage_.model_name + ": " + layer.info.name + " gave no activations for the next layer");
    activations_.forward[{layer.number + 1, instruction.micro_batch}].tensors =
        Held(*stage_.store, detached(output.activations, layer.number >= stage_.first_trainable));
  } else if (input.batches[static_cast<std::size_t>(instruction.micro_batch)].asked_rows.defined()) {
    logits_ = output.logits;
  } else {
    if (!output.loss_sum.defined())
      throw Bug(stage_.model_name + ": the last layer, " + layer.info.name + ", gave no loss_sum");
    micro_batch_loss_ = output.loss_sum.detach();
    count(LossSums::loss, micro_batch_loss_);
  }
  if (evaluating_) return;
  if (layer.number < stage_.first_trainable)
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
void Executor::backward(const Instruction& instruction, const StepInput& input) {
  StageLayer& layer = stage_.layer(instruction.layer);
  const ActivationStore::Key key{layer.number, instruction.micro_batch};
  auto node = activations_.passages.extract(key);
  if (node.empty()) throw Bug("the backward of " + layer.info.name + " comes before its forward");
  Passage passage = std::move(node.mapped());
  if (instruction.recompute && layer.number > 0) bring_inputs(instruction, passage);
  const bool is_loss = layer.number + 1 == stage_.layers_in_model;
  Held gradients;
  if (!is_loss) {
    const PartTimer timer(times_.pipeline);
    gradients = ActivationStore::take(activations_.backward, key, "the gradient of the output");
  }
  ActivationStore::finish(activations_.activation_sends, key);  // the gradient came back, so the output had arrived
  const PartTimer timer(times_.backward);
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
  stage_.linear->leave_in(instruction.op == Op::BackwardInput ? &left.products : nullptr);
  if (!outputs.empty() && !leaves.empty())
    plugin_call(
        stage_.model_name,
        [&] { return "backward of " + layer.info.name + " (layer " + std::to_string(layer.number) + ")"; }, stage_.rank,
        [&] { torch::autograd::backward(outputs, seeds, /*retain_graph=*/false, /*create_graph=*/false, leaves); });
  if (instruction.op == Op::BackwardInput) keep_for_weights(layer, key, std::move(left));
  if (layer.number == 0) return;
  Tensors to_previous;
  for (const at::Tensor& tensor : passage.inputs.tensors()) {
    at::Tensor gradient = tensor.grad();
    to_previous.push_back(gradient.defined() ? gradient : at::zeros_like(tensor.detach()));
  }
  if (layer.number < stage_.first_trainable)  // nobody needs a gradient, and the program passes one on
    for (const TensorShape& shape : stage_.model_layers[static_cast<std::size_t>(layer.number - 1)].outputs)
      to_previous.push_back(
          at::zeros(shape.extents, at::TensorOptions().dtype(shape.dtype).device(stage_.store->device())));
  activations_.backward[{layer.number - 1, instruction.micro_batch}].tensors =
      Held(*stage_.store, std::move(to_previous));
}

// Of what a layer read that is to be computed again.
void Executor::keep_inputs(const Instruction& forward, Passage& passage) {
  const c10::NoGradGuard no_grad;
  if (stage_.partitions_inputs)
    passage.inputs = Held(*stage_.store, parts_of(passage.inputs.tensors(), *stage_.tensor));
  if (forward.input_buffer < 0) return;
  stage_.input_of(forward.layer).write(passage.inputs.tensors(), input_buffer(forward).tensor());
  passage.inputs = Held();
}

// What products of BackwardWeight read may be these inputs, whose buffer is another's by then.
void Executor::bring_inputs(const Instruction& backward, Passage& passage) {
  const bool moved = backward.input_buffer >= 0;
  if (!moved && !stage_.partitions_inputs) return;
  Tensors inputs =
      moved ? stage_.input_of(backward.layer).read(input_buffer(backward).tensor()) : passage.inputs.tensors();
  if (stage_.partitions_inputs) {
    const std::int64_t sent = stage_.input_of(backward.layer).bytes() * (stage_.tensor->size() - 1);
    stage_.linear->time_alone(stage_.store->device().is_cpu() ? sent : 0, [&] {
      inputs = gather_parts(inputs, stage_.input_shapes(backward.layer), *stage_.tensor);
    });
    passage.inputs = Held(*stage_.store, detached(inputs, backward.layer > stage_.first_trainable));
    return;
  }
  const bool read_later = backward.op == Op::BackwardInput;
  if (read_later)
    for (at::Tensor& input : inputs) input = input.clone();
  inputs = detached(inputs, backward.layer > stage_.first_trainable);
  passage.inputs = read_later ? Held(*stage_.store, std::move(inputs)) : Held::views(std::move(inputs));
}

// A product's tensors may be views of one memory, such as the gradient of a sum: each memory counts once.
void Executor::keep_for_weights(const StageLayer& layer, ActivationStore::Key key, LeftGradients left) {
  for (const Parameter* parameter : layer.layer->parameters())
    if (Linear::can_wait(*parameter) && parameter->tensor.grad().defined())
      throw UserError(stage_.model_name + ": " + layer.info.name + " says that " + parameter->info.name +
                      " is linear_only and uses it in another way than ModelContext::linear; its gradient would be "
                      "wrong in a schedule that splits the backward");
  Tensors kept;
  std::set<const c10::StorageImpl*> memories;
  for (const WeightGradient& product : left.products)
    for (const at::Tensor& tensor : {product.dy, product.x})
      if (memories.insert(tensor.storage().unsafeGetStorageImpl()).second) kept.push_back(tensor);
  left.tensors = Held(*stage_.store, std::move(kept));
  activations_.left_gradients.insert_or_assign(key, std::move(left));
}

void Executor::backward_of_weights(const Instruction& instruction) {
  const PartTimer timer(times_.backward);
  auto node = activations_.left_gradients.extract({instruction.layer, instruction.micro_batch});
  if (node.empty())
    throw Bug("the weight gradients of " + stage_.layer(instruction.layer).info.name +
              " are computed before those of its input");
  for (const WeightGradient& gradient : node.mapped().products) stage_.linear->add(gradient);
}

void Executor::borrow_gradient(const Instruction& instruction) {
  const PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  parameter.move_gradient(GradientState::Lent);
  partition(
      [&] { return "gradient(" + parameter.info().name + ")"; },
      [&] {
        parameter.set_gradient_buffer(stage_.partitioner->gradient(parameter, {instruction.first, instruction.last}));
      });
}

void Executor::reduce(const Instruction& instruction) {
  const PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  parameter.set_gradient_buffer(at::Tensor());
  parameter.move_gradient(instruction.last ? GradientState::Reducing : GradientState::Partial);
  const c10::NoGradGuard no_grad;
  partition([&] { return "reduce(" + parameter.info().name + ")"; },
            [&] {
              stage_.partitioner->reduce(parameter, {instruction.first, instruction.last});
            });
}

void Executor::finish_gradient(int flat_parameter) {
  const PartTimer timer(times_.reduce);
  const c10::NoGradGuard no_grad;
  FlatParameter& parameter = flat(flat_parameter);
  partition([&] { return "finish_gradient(" + parameter.info().name + ")"; },
            [&] { stage_.partitioner->finish_gradient(parameter); });
  if (parameter.gradient_state() == GradientState::Reducing) parameter.move_gradient(GradientState::Complete);
}

}  // namespace strata::runtime
