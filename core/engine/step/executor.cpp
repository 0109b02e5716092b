#include "step/executor.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include "group/stop_request.hpp"
#include "plugins/plugin_call.hpp"
#include "stage/seconds_since.hpp"

namespace strata::step {

template <typename Work>
void Executor::partition(const char* function, const FlatParameter& parameter, Work&& work) {
  plugins::plugin_call(
      stage_.plugins.partitioner.name, [&] { return std::string(function) + "(" + parameter.info().name + ")"; },
      stage_.place.rank, std::forward<Work>(work));
}

void Executor::carry_out_and_show(const program::Instruction& instruction, const StepInput& input) {
  using namespace std::chrono;
  const auto now = [] { return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count(); };
  const double pipeline = times_.pipeline, tensor = stage_.layers.linear().times().waited();
  InstructionTimes times{.step = input.step, .begin = now()};
  carry_out(instruction, input);
  times.end = now();
  if (program::is_compute(instruction.op)) times.waited = std::llround(1e9 * (times_.pipeline - pipeline));
  times.waited_for_tensor = std::llround(1e9 * (stage_.layers.linear().times().waited() - tensor));
  see_instruction_(instruction, times);
}

// [Note: tokens that count] The seed divides by all tokens of the global batch, which every rank knows. How many of
// them count is known over the run with the norm, and corrects the loss scale then: where all do, by exactly 1.
void Executor::begin(const StepInput& input) {
  times_ = {};
  gradients_ = &stage_.updates.begin(input.updates);
  stage_.layers.linear().times() = {};
  loss_scale_ = plugins::plugin_call(stage_.plugins.precision.name, "loss_scale()", stage_.place.rank,
                                     [&] { return stage_.plugins.precision->loss_scale(); });
  loss_seed_ = at::full({}, loss_scale_ / static_cast<double>(input.tokens),
                        at::TensorOptions().dtype(at::kFloat).device(stage_.memory.tensors()));
  const auto* const ahead = std::get_if<Ahead>(&left_);
  sums_ =
      ahead != nullptr ? ahead->sums : stage::ForwardSums::zeros(stage_.layers.statistics(), stage_.memory.tensors());
  if (ahead != nullptr) left_ = {};
  measurements_ = plugins::plugin_call(stage_.plugins.precision.name, "maxima()", stage_.place.rank,
                                       [&] { return stage_.plugins.precision->maxima(); });
  if (measurements_.defined()) measurements_.zero_();
  squares_ = at::zeros({static_cast<std::int64_t>(stage_.values.layout().flat.size())}, sums_.sums.options());
  measured_round_ = -1;
  norm_state_ = NormState::Unknown;
  // Every update of the step takes an equal part of it, all of whose tokens count.
  if (const int updates = stage_.layers.updates_within_step(); updates > 0)
    stage_.updates.scalars = {input.learning_rate,
                              input.updates,
                              at::full({}, updates / loss_scale_, stage_.updates.scalar_options()),
                              at::ones({}, stage_.updates.scalar_options()),
                              input.momentum,
                              input.seed};
}

StepOutcome Executor::finish(const StepInput& input) {
  activations_.finish_transfers();  // those of the next step too, so that it may be forgotten
  if (!std::holds_alternative<Ahead>(left_)) activations_.check_empty();
  loss_seed_ = at::Tensor();
  const at::Tensor over_run = std::exchange(maxima_, {});
  at::Tensor totals, maxima;
  stage_.groups.provider().wait_for_device([&] {  // the step's one host synchronisation
    totals = totals_.cpu();
    maxima = over_run.narrow(0, 0, sums_.maxima.numel()).cpu();
  });
  stage_.groups.provider().does("between two steps");
  if (!totals.defined()) return {};  // a dry run does not wait for the device, so it has no numbers
  const double* const numbers = totals.const_data_ptr<double>();
  const std::int64_t groups = groups_of_norm(), sums = sums_.sums.numel();
  StepOutcome outcome{stage::ForwardFigures::of({totals.narrow(0, groups, sums), maxima}, stage_.layers.statistics())};
  outcome.times = times_;
  outcome.times.tensor = stage_.layers.linear().times();
  outcome.made_again = norm_state_ == NormState::AssumedWrongly;
  outcome.stopped_by = group::counted_signal(numbers + groups + sums);
  loss_scale_ *= static_cast<double>(outcome.valid_tokens) / static_cast<double>(input.tokens);
  const double updates = std::max(stage_.layers.updates_within_step(), 1);
  outcome.gradient_norm = static_cast<float>(std::sqrt(numbers[0] * updates) / loss_scale_);  // as norm() rounds
  outcome.finite = std::isfinite(outcome.gradient_norm);
  if (input.clip > 0.0 && outcome.finite)
    outcome.clip_factor = std::min(1.0, input.clip / (outcome.gradient_norm + 1e-6));
  if (stage_.updates.local()) tell_of_groups(input, numbers, outcome);
  return outcome;
}

void Executor::make_pending_updates(const program::Program& updates) {
  measured_round_ = -1;
  for (const program::Instruction& instruction : updates) {
    carry_out(instruction, {});
    // One at a time, as in a step, whose memory the plan counts: what is being published may hold memory.
    if (instruction.op == program::Op::Publish) finish_publish(instruction.flat_parameter);
  }
  left_ = {};
}

void Executor::finish_publish(int flat_parameter) {
  FlatParameter& published = flat(flat_parameter);
  if (published.residence() != Residence::Gathered) return;
  partition("gather", published, [&] { stage_.plugins.partitioner->gather(published, Phase::Forward); });
  partition("release", published, [&] { stage_.plugins.partitioner->release(published, Phase::Forward); });
}

void Executor::evaluate(const program::Program& forwards, const StepInput& input, const stage::ForwardSums& sums) {
  forget_ahead();
  sums_ = sums;
  for (const program::Instruction& instruction : forwards) carry_out(instruction, input);
  ActivationStore::finish_all(activations_.activation_sends);
  stage_.groups.provider().does("evaluating");
  activations_.check_empty();
  sums_ = {};
}

void Executor::carry_out(const program::Instruction& instruction, const StepInput& input) {
  stage_.groups.provider().does(instruction);
  if (instruction.late() && !has_pending_update()) return;
  switch (instruction.op) {
    case program::Op::Forward:
      return forward(instruction, input);
    case program::Op::Backward:
    case program::Op::BackwardInput:
      return backward(instruction, input);
    case program::Op::BackwardWeight:
      return backward_of_weights(instruction);
    case program::Op::SendActivation:
    case program::Op::SendGradient:
      return send(instruction);
    case program::Op::ReceiveActivation:
    case program::Op::ReceiveGradient:
      return receive(instruction);
    case program::Op::Prefetch: {
      const stage::PartTimer timer(times_.gather);
      FlatParameter& coming = flat(instruction.flat_parameter);
      return partition("prefetch", coming, [&] { stage_.plugins.partitioner->prefetch(coming, instruction.phase); });
    }
    case program::Op::Gather: {
      const stage::PartTimer timer(times_.gather);
      FlatParameter& gathered = flat(instruction.flat_parameter);
      return partition("gather", gathered, [&] {
        stage_.plugins.partitioner->gather(gathered, instruction.phase);
        if (gathered.residence() != Residence::Gathered) throw Bug("gather returned and did not bind it");
      });
    }
    case program::Op::Release: {
      FlatParameter& released = flat(instruction.flat_parameter);
      return partition("release", released, [&] { stage_.plugins.partitioner->release(released, instruction.phase); });
    }
    case program::Op::BorrowGradient:
      return borrow_gradient(instruction);
    case program::Op::Reduce:
      return reduce(instruction);
    case program::Op::Fetch:
    case program::Op::Await:
    case program::Op::Store:
    case program::Op::Settle:
      return move(instruction);
    case program::Op::FinishGradient:
      return finish_gradient(instruction.flat_parameter);
    case program::Op::SumReplicas:
      return sum_replicas(instruction.flat_parameter);
    case program::Op::SquareGradient:
      return square_gradient(instruction.flat_parameter);
    case program::Op::StartNorm:
      return start_norm(input, true);
    case program::Op::Norm:
      return norm(input);
    case program::Op::SaveState:
    case program::Op::RestoreState:
      return save_or_restore(instruction);
    case program::Op::Measure:
      return measure(instruction);
    case program::Op::SumStatistics:
      return sum_statistics(instruction.round);
    case program::Op::Update:
      return update(instruction);
    case program::Op::Synchronize:
      return synchronize(instruction, input);
    case program::Op::Publish: {
      const stage::PartTimer timer(times_.optimizer);
      FlatParameter& published = flat(instruction.flat_parameter);
      return partition("publish", published, [&] { stage_.plugins.partitioner->publish(published); });
    }
    case program::Op::Keep:
      return keep(instruction.flat_parameter);
    case program::Op::Stash:
      return stash(instruction);
    case program::Op::Bind:
      return bind(instruction);
    case program::Op::Drop:
      return drop(instruction);
  }
  throw Bug("unknown instruction");
}

void Executor::move(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.offload);
  const program::Moved moved = program::moved_by(instruction);
  if (instruction.op == program::Op::Fetch) stage_.values.buffers().fetch(moved, instruction.contents);
  if (instruction.op == program::Op::Await) stage_.values.buffers().await(moved);
  if (instruction.op == program::Op::Store) stage_.values.buffers().store(moved, instruction.changed);
  if (instruction.op == program::Op::Settle) stage_.values.buffers().settle(moved);
}

void Executor::borrow_gradient(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  parameter.move_gradient(GradientState::Lent);
  at::Tensor lent;
  partition("gradient", parameter, [&] {
    const LentGradient gradient =
        stage_.plugins.partitioner->gradient(parameter, {instruction.first, instruction.last});
    lent = gradient.values;
    parameter.set_gradient_buffer(lent);
    if (gradient.empty) stage_.layers.linear().begin_gradient(parameter);
  });
  gradients_->lent(parameter, lent);
}

void Executor::reduce(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  stage_.layers.linear().end_gradient(parameter);
  parameter.set_gradient_buffer(at::Tensor());
  parameter.move_gradient(instruction.last ? GradientState::Reducing : GradientState::Partial);
  const c10::NoGradGuard no_grad;
  partition("reduce", parameter, [&] {
    stage_.plugins.partitioner->reduce(parameter, {instruction.first, instruction.last});
  });
}

void Executor::finish_gradient(int flat_parameter) {
  const stage::PartTimer timer(times_.reduce);
  const c10::NoGradGuard no_grad;
  FlatParameter& parameter = flat(flat_parameter);
  partition("finish_gradient", parameter, [&] { stage_.plugins.partitioner->finish_gradient(parameter); });
  if (parameter.gradient_state() == GradientState::Reducing) parameter.move_gradient(GradientState::Complete);
}

}  // namespace strata::step
