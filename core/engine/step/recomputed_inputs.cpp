// The inputs of layers that are computed again: what is kept of them until the backward, and where.
#include <c10/core/GradMode.h>

#include "step/executor.hpp"

namespace strata::step {

// Of what a layer read that is to be computed again.
void Executor::keep_inputs(const program::Instruction& forward, Passage& passage) {
  const c10::NoGradGuard no_grad;
  if (stage_.layers.partitions_inputs())
    passage.inputs = Held(stage_.memory.store(), stage::parts_of(passage.inputs.tensors(), *stage_.groups.tensor()));
  if (forward.input_buffer < 0) return;
  stage_.layers.input_of(forward.layer).write(passage.inputs.tensors(), stage_.programs.input_buffer(forward).tensor());
  passage.inputs = Held();
}

// What products of BackwardWeight read may be these inputs, whose buffer is another's by then.
void Executor::bring_inputs(const program::Instruction& backward, Passage& passage) {
  const bool moved = backward.input_buffer >= 0;
  if (!moved && !stage_.layers.partitions_inputs()) return;
  Tensors inputs = moved ? stage_.layers.input_of(backward.layer).read(stage_.programs.input_buffer(backward).tensor())
                         : passage.inputs.tensors();
  if (stage_.layers.partitions_inputs()) {
    const std::int64_t sent = stage_.layers.input_of(backward.layer).bytes() * (stage_.groups.tensor()->size() - 1);
    stage_.layers.linear().time_alone(stage_.memory.tensors().is_cpu() ? sent : 0, [&] {
      inputs = stage::gather_parts(inputs, stage_.layers.input_shapes(backward.layer), *stage_.groups.tensor());
    });
    passage.inputs = Held(stage_.memory.store(), detached(inputs, backward.layer > stage_.layers.first_trainable()));
    return;
  }
  const bool read_later = backward.op == program::Op::BackwardInput;
  if (read_later)
    for (at::Tensor& input : inputs) input = input.clone();
  inputs = detached(inputs, backward.layer > stage_.layers.first_trainable());
  passage.inputs = read_later ? Held(stage_.memory.store(), std::move(inputs)) : Held::views(std::move(inputs));
}

}  // namespace strata::step
