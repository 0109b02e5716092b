// The inputs of layers that are computed again: what is kept of them until the backward, and where.
#include <c10/core/GradMode.h>

#include "step/executor.hpp"

namespace strata::runtime {

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

}  // namespace strata::runtime
