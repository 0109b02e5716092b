// Sends and receives between stages.
#include <ATen/ops/empty.h>

#include "stage/seconds_since.hpp"
#include "step/executor.hpp"

namespace strata::step {

void Executor::send(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.pipeline);
  const auto [begin, end] = stage_.layers.plan().placement.layers_of_chunk[static_cast<std::size_t>(instruction.chunk)];
  const bool activation = instruction.op == program::Op::SendActivation;
  // What was sent before lies earlier in the order that all stages follow, so its receive has been posted: this wait
  // cannot stall.
  if (!activation) ActivationStore::finish_all(activations_.gradient_sends);
  if (instruction.evaluates) ActivationStore::finish_all(activations_.activation_sends);  // no backward will
  const ActivationStore::Key flow{activation ? end : begin - 1, instruction.micro_batch};
  ActivationStore::Flow& sending =
      (activation ? activations_.activation_sends
                  : activations_.gradient_sends)[{activation ? end - 1 : begin, instruction.micro_batch}];
  Tensors contiguous;
  Held held = ActivationStore::take(activation ? activations_.forward : activations_.backward, flow,
                                    activation ? "the output" : "the gradient");
  for (const at::Tensor& tensor : held.tensors()) contiguous.push_back(tensor.detach().contiguous());
  held = Held();
  sending.tensors = Held(stage_.memory.store(), std::move(contiguous));
  for (const at::Tensor& tensor : sending.tensors.tensors())
    sending.transfers.push_back(stage_.groups.pipeline().send(tensor, instruction.peer_stage));
}

void Executor::receive(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.pipeline);
  const auto [begin, end] = stage_.layers.plan().placement.layers_of_chunk[static_cast<std::size_t>(instruction.chunk)];
  const bool activation = instruction.op == program::Op::ReceiveActivation;
  const LayerInfo& giver = stage_.layers.model()[static_cast<std::size_t>(activation ? begin - 1 : end - 1)];
  Tensors buffers;
  for (const TensorShape& shape : giver.outputs)
    buffers.push_back(at::empty(shape.extents, at::TensorOptions().dtype(shape.dtype).device(stage_.memory.tensors())));
  ActivationStore::Flow& flow = activation ? activations_.forward[{begin, instruction.micro_batch}]
                                           : activations_.backward[{end - 1, instruction.micro_batch}];
  for (const at::Tensor& buffer : buffers)
    flow.transfers.push_back(stage_.groups.pipeline().receive(buffer, instruction.peer_stage));
  if (activation && begin > stage_.layers.first_trainable())
    for (at::Tensor& buffer : buffers)
      if (at::isFloatingType(buffer.scalar_type())) buffer.set_requires_grad(true);
  flow.tensors = Held(stage_.memory.store(), std::move(buffers));
}

}  // namespace strata::step
