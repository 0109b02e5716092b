// The outer step of `step_policy: local`: see [Note: the outer step].
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "stage/seconds_since.hpp"
#include "step/executor.hpp"

namespace strata::step {

void Executor::synchronize(const program::Instruction& instruction, const StepInput& input) {
  const stage::LocalTraining& local = *stage_.updates.local();
  if (!local.is_due(input.step + 1, instruction.flat_parameter)) return;
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  const std::vector<state::OptimizerState::Entry*>& entries =
      stage_.updates.state().entries_of(instruction.flat_parameter);
  std::int64_t elements = 0;
  for (const state::OptimizerState::Entry* const entry : entries) elements += entry->common.elements;
  if (elements == 0) return;  // nor do the other groups' ranks own any
  Slot* const slot =
      stage_.memory.slots().acquire(Category::Bucket, elements * static_cast<std::int64_t>(sizeof(float)));
  slot->last_use().block(StreamKind::Compute);
  const at::Tensor sum = slot->as(at::kFloat, elements);
  const auto each = [&](const auto& visit) {
    std::int64_t at = 0;
    for (const state::OptimizerState::Entry* const entry : entries) {
      visit(*entry, sum.narrow(0, at, entry->common.elements));
      at += entry->common.elements;
    }
  };
  const auto tensor = [&](const BufferRange& range) { return stage_.values.buffers().for_update(range); };
  each([&](const state::OptimizerState::Entry& entry, const at::Tensor& part) { part.copy_(tensor(entry.master)); });
  local.replicas->all_reduce(sum, ReduceOperation::Sum).wait();
  each([&](const state::OptimizerState::Entry& entry, const at::Tensor& part) {
    const at::Tensor common = tensor(entry.common), momentum = tensor(entry.outer_momentum);
    const at::Tensor outer_gradient = part.div_(local.groups()).neg_().add_(common);
    momentum.mul_(local.options.momentum).add_(outer_gradient);
    common.sub_(outer_gradient.add_(momentum, local.options.momentum), local.options.rate);
    tensor(entry.master).copy_(common);
    tensor(entry.parameter).copy_(common);
  });
  slot->last_use().record(StreamKind::Compute);
  stage_.memory.slots().release(slot);
}

// Each group has clipped by a norm of its own. The reported ones are of the run.
void Executor::tell_of_groups(const StepInput& input, const double* totals, StepOutcome& outcome) const {
  const int groups = groups_of_norm();
  const double* const tokens = totals + totals_.numel() - groups;
  double squares = 0.0, factors = 0.0;
  for (int group = 0; group < groups; ++group) {
    const double of_run = std::max(tokens[group], 1.0) / static_cast<double>(outcome.valid_tokens);
    const double norm = static_cast<float>(std::sqrt(totals[group]) / (loss_scale_ * of_run));  // as norm() rounds
    squares += norm * norm / groups;
    factors += (input.clip > 0.0 ? std::min(1.0, input.clip / (norm + 1e-6)) : 1.0) / groups;
  }
  outcome.gradient_norm = std::sqrt(squares);
  outcome.finite = std::isfinite(outcome.gradient_norm) && outcome.valid_tokens > 0;
  outcome.clip_factor = outcome.finite ? factors : 1.0;
}

}  // namespace strata::step
