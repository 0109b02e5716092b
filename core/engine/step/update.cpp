// The end of a step: the gradient's norm over the whole run, clipping, and the optimizer's pass. gradients.cpp is what
// comes before.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <span>
#include <utility>

#include "group/stop_request.hpp"
#include "plugins/plugin_call.hpp"
#include "stage/seconds_since.hpp"
#include "step/executor.hpp"

namespace strata::step {

namespace {

// 1 where a number is finite, else 0. Meta tensors have no isfinite.
at::Tensor finite(const at::Tensor& numbers) {
  return numbers.sub(numbers).eq(0.0);
}

// The scalars of an update by a gradient with this norm, of which `counted` is the share of the tokens that count.
StepScalars scalars_by_norm(const StepInput& input, double loss_scale, const at::Tensor& counted,
                            const at::Tensor& squared_norm) {
  const at::Tensor scale = counted.mul(loss_scale);
  const at::Tensor norm = squared_norm.sqrt().div(scale).to(at::kFloat).to(at::kDouble);
  at::Tensor factor = at::full({}, 1.0, norm.options());
  if (input.clip > 0.0) factor = norm.add(1e-6).reciprocal().mul(input.clip).clamp_max(1.0);
  return {input.learning_rate,         input.updates,  factor.div(scale).to(at::kFloat),
          finite(norm).to(at::kFloat), input.momentum, input.seed};
}

}  // namespace

// One all-reduce carries the squared norm, the sums of the forwards, how many tokens count, and whether a rank is to
// stop. A gradient that is not finite anywhere makes the sum not finite everywhere, so all ranks agree without a flag
// of its own. Without a token that counts the norm is not finite.
void Executor::start_norm(const StepInput& input, bool assumes) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  if (!assumes) activations_.finish_transfers();
  sums_.sums.select(0, stage::ForwardSums::valid_tokens).fill_(static_cast<double>(input.valid_tokens));
  const std::vector<std::int64_t> stops = group::stop_counts(input.stop_requested ? input.stop_requested() : 0);
  const std::int64_t groups = groups_of_norm(), group = stage_.updates.local() ? stage_.updates.local()->group() : 0;
  const std::int64_t first_stop = groups + sums_.sums.numel();
  const std::int64_t first_tokens = first_stop + static_cast<std::int64_t>(stops.size());
  totals_ = at::zeros({first_tokens + (groups > 1 ? groups : 0)}, sums_.sums.options());
  totals_.select(0, group).copy_(squares_.sum());
  totals_.narrow(0, groups, sums_.sums.numel()).copy_(sums_.sums);
  for (std::size_t i = 0; i < stops.size(); ++i)  // filled, not copied, which would make the host wait for the device
    if (stops[i] != 0) totals_.select(0, first_stop + static_cast<std::int64_t>(i)).fill_(stops[i]);
  if (groups > 1) totals_.select(0, first_tokens + group).fill_(static_cast<double>(input.valid_tokens));
  norm_ = stage_.groups.world().all_reduce(totals_, ReduceOperation::Sum);
  start_maxima();
  if (assumes) norm_state_ = NormState::Assumed;
  if (!assumes) return;
  const at::TensorOptions numbers = totals_.options();
  stage_.updates.scalars = scalars_by_norm(input, loss_scale_, at::full({}, 1.0, numbers), at::full({}, 0.0, numbers));
}

// One all-reduce carries the maxima of the layers and of the precision policy; without any there is none.
void Executor::start_maxima() {
  const std::int64_t of_layers = sums_.maxima.numel(), measured = measurements_.defined() ? measurements_.numel() : 0;
  maxima_ = at::empty({of_layers + measured}, sums_.maxima.options());
  if (maxima_.numel() == 0) return;
  maxima_.narrow(0, 0, of_layers).copy_(sums_.maxima);
  if (measured > 0) maxima_.narrow(0, of_layers, measured).copy_(measurements_);
  maxima_over_ranks_ = stage_.groups.world().all_reduce(maxima_, ReduceOperation::Max);
}

void Executor::finish_maxima() {
  maxima_over_ranks_.wait();
  if (measurements_.defined()) measurements_.copy_(maxima_.narrow(0, sums_.maxima.numel(), measurements_.numel()));
}

void Executor::norm(const StepInput& input) {
  const bool assumed = norm_state_ == NormState::Assumed;
  if (!assumed) start_norm(input, false);
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  norm_.wait();
  finish_maxima();
  norm_state_ = NormState::Known;
  if (!assumed) left_ = PendingUpdates{};
  if (stage_.layers.updates_within_step() > 0) return;
  // Divided by a tensor: a device may multiply by a number's reciprocal, and the quotient of equals must be 1.
  const at::Tensor tokens = at::full({}, static_cast<double>(input.tokens), totals_.options());
  const std::int64_t groups = groups_of_norm();
  const at::Tensor tokens_of_groups = totals_.narrow(0, totals_.numel() - groups, groups);
  // A group without a token that counts has no gradient, which is 0 and no reason to skip.
  const at::Tensor counted =
      groups > 1 ? tokens_of_groups.clamp_min(1.0) : totals_.narrow(0, 1 + stage::ForwardSums::valid_tokens, 1);
  const std::int64_t group = stage_.updates.local() ? stage_.updates.local()->group() : 0;
  StepScalars scalars =
      scalars_by_norm(input, loss_scale_, counted.select(0, group).div(tokens), totals_.select(0, group));
  if (groups > 1)  // none goes on without the others: the number of updates is the run's
    scalars.apply = finite(totals_.narrow(0, 0, groups).sqrt().div(counted.div(tokens).mul(loss_scale_)).to(at::kFloat))
                        .all()
                        .bitwise_and(tokens_of_groups.sum().gt(0.0))
                        .to(at::kFloat);
  if (stage_.values.buffers().updates_on_host())
    stage_.groups.provider().wait_for_device([&] {
      scalars.gradient_factor = scalars.gradient_factor.cpu();
      scalars.apply = scalars.apply.cpu();
    });
  if (assumed) {
    const at::Tensor as_assumed = scalars.gradient_factor.eq(stage_.updates.scalars.gradient_factor).mul(scalars.apply);
    stage_.groups.provider().wait_for_device([&] {
      if (as_assumed.item<float>() == 0.0F) norm_state_ = NormState::AssumedWrongly;
    });
    measured_round_ = -1;
  }
  stage_.updates.scalars = scalars;
}

void Executor::save_or_restore(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  if (instruction.op == program::Op::SaveState) return stage_.updates.state().save(instruction.flat_parameter);
  finish_publish(instruction.flat_parameter);
  stage_.updates.state().restore(instruction.flat_parameter);
}

// Each element is measured by one of the stage's ranks.
void Executor::measure(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  const at::Tensor sums_of_stage = stage_.updates.sums()->of_round(instruction.round);
  if (!sums_of_stage.defined()) return;  // this stage's parameters have none
  if (std::exchange(measured_round_, instruction.round) != instruction.round) sums_of_stage.zero_();
  state::OptimizerState& state = stage_.updates.state();
  for (state::OptimizerState::Entry* const entry : state.entries_of(instruction.flat_parameter)) {
    const at::Tensor sums = stage_.updates.sums()->of(entry->piece.info.parameter, instruction.round);
    if (!sums.defined() || entry->measured_begin == entry->measured_end) continue;
    Piece part = state::OptimizerState::part_of(state.piece_of(*entry, instruction.kept()), *entry,
                                                entry->measured_begin, entry->measured_end);
    const bool on_host = stage_.values.buffers().updates_on_host();
    part.sums = on_host ? at::zeros(sums.sizes(), at::kDouble) : sums;
    stage_.updates.calls().measure(part, instruction.round, scalars_of(instruction));
    if (on_host) sums.add_(part.sums.to(sums.device()));
  }
}

// One all-reduce carries the sums of all parameters.
void Executor::sum_statistics(int round) {
  const stage::PartTimer timer(times_.optimizer);
  measured_round_ = -1;
  const at::Tensor sums = stage_.updates.sums()->of_round(round);
  if (!sums.defined()) return;  // this stage's parameters have none
  stage_.updates.sums_group()->all_reduce(sums, ReduceOperation::Sum).wait();
}

void Executor::update(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  FlatParameter& updated = flat(instruction.flat_parameter);
  if (!instruction.kept() && norm_state_ != NormState::AssumedWrongly && instruction.part == 0 &&
      instruction.round + 1 == stage_.updates.sums()->rounds())
    updated.move_gradient(GradientState::Empty);
  state::OptimizerState& state = stage_.updates.state();
  std::vector<Piece*> pieces;
  for (state::OptimizerState::Entry* const entry : state.entries_of(instruction.flat_parameter)) {
    if (entry->part != instruction.part) continue;
    pieces.push_back(&state.piece_of(*entry, instruction.kept()));
    pieces.back()->sums = stage_.updates.sums()->of(pieces.back()->info.parameter, instruction.round);
  }
  gradients_->update(updated, pieces, instruction.round, scalars_of(instruction));
}

StepScalars Executor::scalars_of(const program::Instruction& instruction) const {
  StepScalars scalars = stage_.updates.scalars;
  scalars.updates += instruction.version;
  return scalars;
}

void Executor::keep(int flat_parameter) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  flat(flat_parameter).move_gradient(GradientState::Empty);
  for (const state::OptimizerState::Entry* const entry : stage_.updates.state().entries_of(flat_parameter))
    stage_.values.buffers().for_update(entry->kept).copy_(stage_.values.buffers().for_update(entry->gradient));
}

}  // namespace strata::step
