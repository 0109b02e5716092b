// What is done with gradients when they are final: sums over those who hold a parameter too, what each rank adds to the
// norm, and which are not finite.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/operators.hpp>

#include <cmath>
#include <utility>

#include "group/numbers.hpp"
#include "stage/seconds_since.hpp"
#include "step/executor.hpp"
#include "step/parameter_numbers.hpp"

namespace strata::step {

namespace {
// By the device's own operator, or in fp64, some elements at a time. fp64 for [Note: a norm that does not depend on how
// the gradient is cut].
at::Tensor sum_of_squares(const std::vector<at::Tensor>& gradients) {
  const at::Device device = gradients.front().device();
  if (operators::available("sum_of_squares", device)) return operators::sum_of_squares(gradients);
  if (device.is_meta()) return at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));  // no values
  constexpr std::int64_t some = 1 << 18;
  at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  for (const at::Tensor& gradient : gradients)
    for (const at::Tensor& part : gradient.split(some)) sum.add_(part.to(at::kDouble).square().sum());
  return sum;
}
}  // namespace

// Each element is counted by one rank of a replica group.
void Executor::square_gradient(int flat_parameter) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  const bool is_seen = see_gradient_ && (!stage_.updates.local() || stage_.updates.local()->group() == 0);
  std::vector<at::Tensor> gradients;
  for (const auto& [span, begin, all, counted] : gradients_->final_gradients(flat(flat_parameter))) {
    if (counted.elements == 0) continue;
    const at::Tensor& values = gradients.emplace_back(counted.tensor());
    if (!is_seen) continue;
    const ParameterCut cut = span->cut();
    const std::int64_t first = begin + counted.begin - all.begin;
    cut.for_each_run(cut.part_of(span->tensor_rank), first, first + counted.elements,
                     [&, name = span->info.name](const ParameterCut::Run& run) {
                       see_gradient_(name, run.whole, values.narrow(0, run.in_part - first, run.elements));
                     });
  }
  if (!gradients.empty()) squares_.select(0, flat_parameter).add_(sum_of_squares(gradients));
}

// The ranks that hold a flat parameter own equal slices of it at equal data-parallel rank: those of a tensor group,
// whose flat parameters are alike, and the stages that hold a tied one (stage::Updates), whatever parts each
// updates its slices in. What is summed over a tensor group, many small parameters, goes in one piece.
void Executor::sum_replicas(int flat_parameter) {
  const stage::PartTimer timer(times_.reduce);
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  std::vector<BufferRange> slices;
  for (const stage::FinalGradient& gradient : gradients_->final_gradients(flat(flat_parameter))) {
    const BufferRange& all = gradient.all;
    if (stage_.groups.tensor() != nullptr && gradient.span->info.sums_over_tensor(stage_.place.batch.sequence_parallel))
      parts.push_back(all.tensor());
    if (!slices.empty() && slices.back().buffer == all.buffer &&
        slices.back().begin + slices.back().elements == all.begin)
      slices.back().elements += all.elements;
    else
      slices.push_back(all);
  }
  if (parts.size() == 1) {
    stage_.groups.tensor()->all_reduce(parts.front(), ReduceOperation::Sum).wait();
  } else if (!parts.empty()) {
    const at::Tensor sum = at::cat(parts);
    stage_.groups.tensor()->all_reduce(sum, ReduceOperation::Sum).wait();
    std::int64_t at = 0;
    for (at::Tensor& part : parts) part.copy_(sum.narrow(0, std::exchange(at, at + part.numel()), part.numel()));
  }
  Group* const holders = stage_.updates.holders(flat_parameter);
  if (holders == nullptr) return;
  for (const BufferRange& slice : slices) holders->all_reduce(slice.tensor(), ReduceOperation::Sum).wait();
}

// Every rank knows every layer's parameters, so a mark for each of them, in one order, is all that must travel.
std::vector<std::string> Executor::non_finite_parameters() {
  const c10::NoGradGuard no_grad;
  const ParameterNumbers parameters(stage_.layers.model());
  std::vector<std::int64_t> marks(parameters.names().size(), 0);
  std::vector<std::size_t> numbers;
  std::vector<at::Tensor> squares;
  for (const auto& flat : stage_.values.layout().flat) {
    if (!flat->info().trainable) continue;
    for (const stage::FinalGradient& gradient : gradients_->final_gradients(*flat, /*kept=*/true)) {
      const BufferRange& counted = gradient.counted;
      if (counted.elements == 0) continue;
      numbers.push_back(parameters.of(gradient.span->info.name));
      const auto square = [&](const at::Tensor& values) { squares.push_back(sum_of_squares({values})); };
      if (counted.buffer->here())
        square(counted.tensor());
      else
        stage_.values.buffers().with(counted, memory::Access::Read, square);
    }
  }
  if (!squares.empty()) {
    const at::Tensor host = at::stack(squares).cpu();  // one wait for the device
    for (std::size_t piece = 0; piece < numbers.size(); ++piece)
      if (!std::isfinite(host.const_data_ptr<double>()[piece])) marks[numbers[piece]] = 1;
  }
  const std::vector<std::int64_t> all =
      group::reduce_numbers(stage_.groups.world(), stage_.memory.tensors(), marks, ReduceOperation::Max);
  std::vector<std::string> found;
  for (std::size_t number = all.size(); number-- > 0;)
    if (all[number] != 0) found.push_back(parameters.names()[number]);
  return found;
}

}  // namespace strata::step
