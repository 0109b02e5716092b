// What is done with gradients when they are final: sums over those who hold a parameter too, what each rank adds to the
// norm, and which are not finite. Where the optimizer sends something itself, they are each rank's own.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/operators.hpp>

#include <cmath>
#include <utility>

#include "group/numbers.hpp"
#include "step/executor.hpp"
#include "step/parameter_numbers.hpp"
#include "step/seconds_since.hpp"

namespace strata::runtime {

namespace {
// By the device's own operator, or in fp64, some elements at a time. fp64 for [Note: a norm that does not depend on how
// the gradient is cut].
at::Tensor sum_of_squares(const std::vector<at::Tensor>& gradients) {
  const at::Device device = gradients.front().device();
  if (operators::available("sum_of_squares", device)) return operators::sum_of_squares(gradients);
  constexpr std::int64_t some = 1 << 18;
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const at::Tensor& gradient : gradients)
    for (const at::Tensor& part : gradient.split(some)) sum.add_(part.to(at::kDouble).square().sum());
  return sum;
}
// Where every data-parallel rank has a gradient of its own, each counts all of it, a term of the sum: of one that is
// not finite all must know. What several tensor-parallel ranks or stages hold alike is one's to count.
bool counts_own(const StageState& stage, int flat_parameter, const ParameterSpan& span) {
  if (span.cut().parts() == 1 && span.tensor_rank > 0) return false;
  const auto holders = stage.holders.find(flat_parameter);
  return holders == stage.holders.end() || holders->second->rank() == 0;
}
}  // namespace

// Each element is counted by one rank of a replica group: the entry's range of it, or what counts_own() says.
void Executor::square_gradient(int flat_parameter) {
  const PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  const bool is_seen = !stage_.local || stage_.local->group() == 0;
  std::vector<at::Tensor> gradients;
  const auto count = [&](const ParameterSpan& span, std::int64_t begin, const at::Tensor& gradient) {
    gradients.push_back(gradient);
    if (!see_gradient_ || !is_seen) return;
    const ParameterCut cut = span.cut();
    cut.for_each_run(cut.part_of(span.tensor_rank), begin, begin + gradient.numel(), [&](const ParameterCut::Run& run) {
      see_gradient_(span.info.name, run.whole, gradient.narrow(0, run.in_part - begin, run.elements));
    });
  };
  if (leaves_gradients()) {
    const std::vector<ParameterSpan>& spans = flat(flat_parameter).info().parameters;
    for (std::size_t i = 0; i < spans.size(); ++i)
      if (counts_own(stage_, flat_parameter, spans[i]))
        count(spans[i], 0, stage_.own_gradients.at(flat_parameter)[i].gradient);
  } else {
    for (const state::OptimizerState::Entry* const entry : stage_.optimizer_state->entries_of(flat_parameter))
      if (entry->group_begin < entry->group_end)
        count(*entry->span, entry->piece.info.begin + entry->group_begin, entry->of_group(entry->gradient).tensor());
  }
  if (!gradients.empty() && !stage_.store->dry_run())
    squares_.select(0, flat_parameter).add_(sum_of_squares(gradients));
}

// The ranks that hold a flat parameter own equal slices of it at equal data-parallel rank: those of a tensor group,
// whose flat parameters are alike, and the stages that hold a tied one (Session::connect_ties). What is summed over a
// tensor group, many small parameters, goes in one piece.
void Executor::sum_replicas(int flat_parameter) {
  const PartTimer timer(times_.reduce);
  const c10::NoGradGuard no_grad;
  const bool own = leaves_gradients();
  std::vector<at::Tensor> parts;
  const auto add = [&](const ParameterSpan& span, const at::Tensor& gradient) {
    if (stage_.tensor != nullptr && span.info.sums_over_tensor(stage_.sequence_parallel)) parts.push_back(gradient);
  };
  if (own) {
    const std::vector<ParameterSpan>& spans = flat(flat_parameter).info().parameters;
    for (std::size_t i = 0; i < spans.size(); ++i) add(spans[i], stage_.own_gradients.at(flat_parameter)[i].gradient);
  } else {
    for (const state::OptimizerState::Entry* const entry : stage_.optimizer_state->entries_of(flat_parameter))
      add(*entry->span, entry->gradient.tensor());
  }
  if (parts.size() == 1) {
    stage_.tensor->all_reduce(parts.front(), ReduceOperation::Sum).wait();
  } else if (!parts.empty()) {
    const at::Tensor sum = at::cat(parts);
    stage_.tensor->all_reduce(sum, ReduceOperation::Sum).wait();
    std::int64_t at = 0;
    for (at::Tensor& part : parts) part.copy_(sum.narrow(0, std::exchange(at, at + part.numel()), part.numel()));
  }
  const auto holders = stage_.holders.find(flat_parameter);
  if (holders == stage_.holders.end()) return;
  std::vector<at::Tensor> shared;
  if (own)
    for (const Piece& piece : stage_.own_gradients.at(flat_parameter)) shared.push_back(piece.gradient);
  else
    for (const state::OptimizerState::OwnedGradient& owned : stage_.optimizer_state->gradients_of(flat_parameter))
      shared.push_back(owned.gradient.tensor());
  for (const at::Tensor& gradient : shared) holders->second->all_reduce(gradient, ReduceOperation::Sum).wait();
}

// Every rank knows every layer's parameters, so a mark for each of them, in one order, is all that must travel.
std::vector<std::string> Executor::non_finite_parameters() {
  const c10::NoGradGuard no_grad;
  const ParameterNumbers parameters(stage_.model_layers);
  std::vector<std::int64_t> marks(parameters.names().size(), 0);
  std::vector<std::size_t> numbers;
  std::vector<at::Tensor> squares;
  const auto look = [&](const std::string& parameter, const at::Tensor& gradient) {
    numbers.push_back(parameters.of(parameter));
    squares.push_back(sum_of_squares({gradient}));
  };
  if (leaves_gradients()) {
    for (const auto& [id, own] : stage_.own_gradients)
      for (const Piece& piece : own) look(piece.info.parameter, piece.gradient);
  } else {
    for (const state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
      if (!entry.trainable || entry.group_begin == entry.group_end) continue;
      const BufferRange& newest = entry.kept.buffer != nullptr ? entry.kept : entry.gradient;
      stage_.buffers->with(entry.of_group(newest), state::Access::Read,
                           [&](const at::Tensor& gradient) { look(entry.piece.info.parameter, gradient); });
    }
  }
  if (!squares.empty()) {
    const at::Tensor host = at::stack(squares).cpu();  // one wait for the device
    for (std::size_t piece = 0; piece < numbers.size(); ++piece)
      if (!std::isfinite(host.const_data_ptr<double>()[piece])) marks[numbers[piece]] = 1;
  }
  const std::vector<std::int64_t> all =
      reduce_numbers(*stage_.world, stage_.store->device(), marks, ReduceOperation::Max);
  std::vector<std::string> found;
  for (std::size_t number = all.size(); number-- > 0;)
    if (all[number] != 0) found.push_back(parameters.names()[number]);
  return found;
}

}  // namespace strata::runtime
