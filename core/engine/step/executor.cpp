#include "step/executor.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include "group/stop_request.hpp"
#include "plugins/plugin_call.hpp"
#include "step/own_exchange_host.hpp"
#include "step/seconds_since.hpp"

namespace strata::runtime {

template <typename Work>
void Executor::partition(const char* function, const FlatParameter& parameter, Work&& work) {
  plugin_call(
      stage_.partitioner.name, [&] { return std::string(function) + "(" + parameter.info().name + ")"; }, stage_.rank,
      std::forward<Work>(work));
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
  const bool own = stage_.own_exchange != nullptr && stage_.own_exchange->begin(input.updates);
  gradients_ = own ? stage_.own_gradients : &summed_gradients_;
  stage_.linear->times() = {};
  loss_scale_ =
      plugin_call(stage_.precision.name, "loss_scale()", stage_.rank, [&] { return stage_.precision->loss_scale(); });
  loss_seed_ = at::full({}, loss_scale_ / static_cast<double>(input.tokens),
                        at::TensorOptions().dtype(at::kFloat).device(stage_.store->device()));
  const auto* const ahead = std::get_if<Ahead>(&left_);
  sums_ = ahead != nullptr ? ahead->sums : ForwardSums::zeros(stage_.statistics, stage_.store->device());
  if (ahead != nullptr) left_ = {};
  measurements_ =
      plugin_call(stage_.precision.name, "maxima()", stage_.rank, [&] { return stage_.precision->maxima(); });
  if (measurements_.defined()) measurements_.zero_();
  squares_ = at::zeros({static_cast<std::int64_t>(stage_.layout.flat.size())}, sums_.sums.options());
  measured_round_ = -1;
  norm_state_ = NormState::Unknown;
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
  if (!std::holds_alternative<Ahead>(left_)) activations_.check_empty();
  loss_seed_ = at::Tensor();
  const at::Tensor over_run = std::exchange(maxima_, {});
  if (stage_.store->dry_run()) return {};
  at::Tensor totals, maxima;
  stage_.groups->wait_for_device([&] {  // the step's one host synchronisation
    totals = totals_.cpu();
    maxima = over_run.narrow(0, 0, sums_.maxima.numel()).cpu();
  });
  stage_.groups->does("between two steps");
  const double* const numbers = totals.const_data_ptr<double>();
  const std::int64_t groups = groups_of_norm(), sums = sums_.sums.numel();
  StepOutcome outcome{ForwardFigures::of({totals.narrow(0, groups, sums), maxima}, stage_.statistics)};
  outcome.times = times_;
  outcome.times.tensor = stage_.linear->times();
  outcome.made_again = norm_state_ == NormState::AssumedWrongly;
  outcome.stopped_by = counted_signal(numbers + groups + sums);
  loss_scale_ *= static_cast<double>(outcome.valid_tokens) / static_cast<double>(input.tokens);
  const double updates = std::max(stage_.updates_within_step, 1);
  outcome.gradient_norm = static_cast<float>(std::sqrt(numbers[0] * updates) / loss_scale_);  // as norm() rounds
  outcome.finite = std::isfinite(outcome.gradient_norm);
  if (input.clip > 0.0 && outcome.finite)
    outcome.clip_factor = std::min(1.0, input.clip / (outcome.gradient_norm + 1e-6));
  if (stage_.local) tell_of_groups(input, numbers, outcome);
  return outcome;
}

void Executor::make_pending_updates(const Program& updates) {
  measured_round_ = -1;
  for (const Instruction& instruction : updates) {
    carry_out(instruction, {});
    // One at a time, as in a step, whose memory the plan counts: what is being published may hold memory.
    if (instruction.op == Op::Publish) finish_publish(instruction.flat_parameter);
  }
  left_ = {};
}

void Executor::finish_publish(int flat_parameter) {
  FlatParameter& published = flat(flat_parameter);
  if (published.residence() != Residence::Gathered) return;
  partition("gather", published, [&] { stage_.partitioner->gather(published, Phase::Forward); });
  partition("release", published, [&] { stage_.partitioner->release(published, Phase::Forward); });
}

void Executor::evaluate(const Program& forwards, const StepInput& input, const ForwardSums& sums) {
  forget_ahead();
  sums_ = sums;
  for (const Instruction& instruction : forwards) carry_out(instruction, input);
  ActivationStore::finish_all(activations_.activation_sends);
  stage_.groups->does("evaluating");
  activations_.check_empty();
  sums_ = {};
}

void Executor::carry_out(const Instruction& instruction, const StepInput& input) {
  stage_.groups->does(instruction);
  if (instruction.late() && !has_pending_update() && !stage_.store->dry_run()) return;
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
      FlatParameter& coming = flat(instruction.flat_parameter);
      return partition("prefetch", coming, [&] { stage_.partitioner->prefetch(coming, instruction.phase); });
    }
    case Op::Gather: {
      const PartTimer timer(times_.gather);
      FlatParameter& gathered = flat(instruction.flat_parameter);
      return partition("gather", gathered, [&] {
        stage_.partitioner->gather(gathered, instruction.phase);
        if (gathered.residence() != Residence::Gathered) throw Bug("gather returned and did not bind it");
      });
    }
    case Op::Release: {
      FlatParameter& released = flat(instruction.flat_parameter);
      return partition("release", released, [&] { stage_.partitioner->release(released, instruction.phase); });
    }
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
    case Op::Synchronize:
      return synchronize(instruction, input);
    case Op::Publish: {
      const PartTimer timer(times_.optimizer);
      FlatParameter& published = flat(instruction.flat_parameter);
      return partition("publish", published, [&] { stage_.partitioner->publish(published); });
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
  const Moved moved = moved_by(instruction);
  if (instruction.op == Op::Fetch) stage_.buffers->fetch(moved, instruction.contents);
  if (instruction.op == Op::Await) stage_.buffers->await(moved);
  if (instruction.op == Op::Store) stage_.buffers->store(moved, instruction.changed);
  if (instruction.op == Op::Settle) stage_.buffers->settle(moved);
}

void Executor::borrow_gradient(const Instruction& instruction) {
  const PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  parameter.move_gradient(GradientState::Lent);
  at::Tensor lent;
  partition("gradient", parameter, [&] {
    const LentGradient gradient = stage_.partitioner->gradient(parameter, {instruction.first, instruction.last});
    lent = gradient.values;
    parameter.set_gradient_buffer(lent);
    if (gradient.empty) stage_.linear->begin_gradient(parameter);
  });
  gradients_->lent(parameter, lent);
}

void Executor::reduce(const Instruction& instruction) {
  const PartTimer timer(times_.reduce);
  FlatParameter& parameter = flat(instruction.flat_parameter);
  stage_.linear->end_gradient(parameter);
  parameter.set_gradient_buffer(at::Tensor());
  parameter.move_gradient(instruction.last ? GradientState::Reducing : GradientState::Partial);
  const c10::NoGradGuard no_grad;
  partition("reduce", parameter, [&] { stage_.partitioner->reduce(parameter, {instruction.first, instruction.last}); });
}

void Executor::finish_gradient(int flat_parameter) {
  const PartTimer timer(times_.reduce);
  const c10::NoGradGuard no_grad;
  FlatParameter& parameter = flat(flat_parameter);
  partition("finish_gradient", parameter, [&] { stage_.partitioner->finish_gradient(parameter); });
  if (parameter.gradient_state() == GradientState::Reducing) parameter.move_gradient(GradientState::Complete);
}

}  // namespace strata::runtime
