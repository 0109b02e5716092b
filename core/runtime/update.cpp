// The end of a step: the gradient's norm over the whole run, clipping, and the optimizer's pass.
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <strata/operators.hpp>

#include <chrono>
#include <cmath>
#include <map>

#include "runtime/executor.hpp"
#include "runtime/plugin_call.hpp"

namespace strata::runtime {

namespace {
double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// In fp32 within rows and in fp64 over them. One fp32 sum over millions of elements is off by 2e-4, and by another amount
// for every way of cutting the gradient into pieces.
at::Tensor sum_of_squares(const at::Tensor& values) {
  constexpr std::int64_t row = 4096;
  const std::int64_t rows = values.size(0) / row;
  const at::Tensor whole = values.narrow(0, 0, rows * row).view({rows, row});
  const at::Tensor rest = values.narrow(0, rows * row, values.size(0) - rows * row);
  const at::Tensor norms = at::linalg_vector_norm(whole, 2, at::IntArrayRef{1}, false, at::kFloat);
  const at::Tensor last = at::linalg_vector_norm(rest, 2, std::nullopt, false, at::kFloat);
  return norms.to(at::kDouble).square().sum().add(last.to(at::kDouble).square());
}

at::Tensor counted_gradient(const state::OptimizerState::Entry& entry) {
  return entry.piece.gradient.narrow(0, entry.counted_begin, entry.counted_end - entry.counted_begin);
}

at::Tensor squares_by_piece(const std::vector<const state::OptimizerState::Entry*>& entries) {
  std::vector<at::Tensor> squares;
  for (const state::OptimizerState::Entry* entry : entries) squares.push_back(sum_of_squares(counted_gradient(*entry)));
  return at::stack(squares);
}
}  // namespace

// One all-reduce carries both the squared norm and the loss. Each element is counted by one rank: the entry's counted range. A
// gradient that is not finite anywhere makes the sum not finite everywhere, so all ranks agree without a flag of its own.
void Executor::norm(const StepInput& input) {
  const auto begin = std::chrono::steady_clock::now();
  const c10::NoGradGuard no_grad;
  counted_.clear();
  squares_ = at::Tensor();
  std::vector<at::Tensor> gradients;
  for (const state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
    if (!entry.trainable || entry.counted_begin == entry.counted_end) continue;
    counted_.push_back(&entry);
    gradients.push_back(counted_gradient(entry));
  }
  totals_ = at::zeros({2}, loss_sum_.options());
  if (!gradients.empty()) {
    const bool one_pass = operators::available("sum_of_squares", gradients.front().device());  // the device's own operator
    if (!one_pass) squares_ = squares_by_piece(counted_);
    totals_.select(0, 0).copy_(one_pass ? operators::sum_of_squares(gradients) : squares_.sum());
  }
  totals_.select(0, 1).copy_(loss_sum_.select(0, 0));
  stage_.world->all_reduce(totals_, ReduceOperation::Sum).wait();
  if (stage_.store->dry_run()) return;  // nothing below holds or sends anything
  const at::Tensor norm = totals_.select(0, 0).sqrt().div(loss_scale_);
  apply_ = norm.isfinite().to(at::kFloat);
  at::Tensor factor = at::full({}, 1.0, norm.options());
  if (input.clip > 0.0) factor = norm.add(1e-6).reciprocal().mul(input.clip).clamp_max(1.0);
  factor_ = factor.div(loss_scale_).to(at::kFloat);
  times_.optimizer += seconds_since(begin);
}

// Every rank knows every layer's parameters, so a mark for each of them, in one order, is all that must travel.
std::vector<std::string> Executor::non_finite_parameters() {
  const c10::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::map<std::string, std::int64_t> numbers;
  for (const LayerInfo& layer : stage_.model_layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (numbers.emplace(parameter.name, names.size()).second) names.push_back(parameter.name);
  std::vector<std::int64_t> marks(names.size(), 0);
  if (!counted_.empty()) {
    const at::Tensor squares = (squares_.defined() ? squares_ : squares_by_piece(counted_)).cpu();
    for (std::size_t piece = 0; piece < counted_.size(); ++piece)
      if (!std::isfinite(squares.const_data_ptr<double>()[piece]))
        marks.at(static_cast<std::size_t>(numbers.at(counted_[piece]->piece.info.parameter))) = 1;
  }
  const at::Tensor all = at::tensor(marks, at::TensorOptions().dtype(at::kLong)).to(stage_.store->device());
  stage_.world->all_reduce(all, ReduceOperation::Max).wait();
  const at::Tensor host = all.cpu();
  std::vector<std::string> found;
  for (std::size_t number = names.size(); number-- > 0;)
    if (host.const_data_ptr<std::int64_t>()[number] != 0) found.push_back(names[number]);
  return found;
}

void Executor::update(const StepInput& input) {
  const auto begin = std::chrono::steady_clock::now();
  const c10::NoGradGuard no_grad;
  StepScalars scalars{input.learning_rate, input.updates, factor_, apply_};
  const bool dry_run = stage_.store->dry_run();
  if (stage_.host_step != nullptr && !dry_run) scalars = state::HostStep::on_host(scalars);
  const auto step = [&](const Piece& whole, Piece& piece) {
    plugin_call(
        stage_.optimizer.name, [&] { return "step(" + whole.info.parameter + ")"; }, stage_.rank,
        [&] { stage_.optimizer->step(piece, scalars); });
  };
  for (state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
    if (!entry.trainable || dry_run) continue;
    if (stage_.host_step != nullptr)
      stage_.host_step->step(entry, scalars, [&](Piece& piece) { step(entry.piece, piece); });
    else
      step(entry.piece, entry.piece);
  }
  for (const auto& parameter : stage_.layout.flat)
    if (parameter->info().trainable) parameter->move_gradient(GradientState::Empty);
  times_.optimizer += seconds_since(begin);
}

}  // namespace strata::runtime
