#include "softmax_gradient.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/vector_clones.hpp>

#include "exponential.hpp"
#include "half_precision.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace strata {
namespace {

constexpr std::int64_t lanes = 32;    // independent sums, so that the compiler may use vectors
constexpr std::int64_t block = 2048;  // elements summed in fp32 before the sum is carried on in fp64

STRATA_VECTOR_CLONES float largest(const float* values, std::int64_t count) {
  float partial[lanes];
  std::fill_n(partial, lanes, -INFINITY);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t j = 0; j < lanes; ++j) partial[j] = values[i + j] > partial[j] ? values[i + j] : partial[j];
  }
  for (; i < count; ++i) partial[0] = std::max(partial[0], values[i]);
  return *std::max_element(partial, partial + lanes);
}

// values[i] = e^(values[i] - shift); returns their sum.
STRATA_VECTOR_CLONES double exponentials(float* values, std::int64_t count, float shift) {
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t end = std::min(begin + block, count);
    float partial[lanes] = {};
    std::int64_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      for (std::int64_t j = 0; j < lanes; ++j) {
        const float value = exponential(values[i + j] - shift);
        values[i + j] = value;
        partial[j] += value;
      }
    }
    for (; i < end; ++i) sum += values[i] = exponential(values[i] - shift);
    for (const float part : partial) sum += part;
  }
  return sum;
}

STRATA_VECTOR_CLONES void multiply(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

struct RowLoss {
  double loss = 0.0;
  double log_sum = 0.0;  // log(sum of exp(logits)); 0 for a row without a target
  float largest = -INFINITY;
};

// One row's loss; with a seed other than 0 its logits become their gradient.
RowLoss row_loss(float* logits, std::int64_t count, std::int64_t target, double z_loss, double seed) {
  const double target_logit = logits[target];
  const float shift = largest(logits, count);
  const double sum = exponentials(logits, count, shift);
  const double log_sum = std::log(sum) + shift;
  if (seed != 0.0) {
    const double slope = z_loss == 0.0 ? seed : seed * (1.0 + 2.0 * z_loss * log_sum);
    multiply(logits, count, static_cast<float>(slope / sum));
    logits[target] -= static_cast<float>(seed);
  }
  return {log_sum - target_logit, log_sum, shift};
}

// Row by row, so that a row's passes but the first find it in cache.
template <class Scalar>
std::vector<RowLoss> row_losses(const at::Tensor& logits, const at::Tensor& targets, double z_loss, double seed) {
  const std::int64_t rows = logits.size(0), count = logits.size(1);
  Scalar* const data = logits.mutable_data_ptr<Scalar>();
  const std::int64_t* const target = targets.const_data_ptr<std::int64_t>();
  std::vector<RowLoss> losses(static_cast<std::size_t>(rows));
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::unique_ptr<float[]> widened;
    if (!std::is_same_v<Scalar, float>) widened = std::make_unique<float[]>(static_cast<std::size_t>(count));
    for (std::int64_t row = begin; row < end; ++row) {
      Scalar* const values = data + row * count;
      if (target[row] == ignored_target) {
        if (seed != 0.0) std::fill_n(values, count, Scalar(0.0F));
      } else if constexpr (std::is_same_v<Scalar, float>) {
        losses[static_cast<std::size_t>(row)] = row_loss(values, count, target[row], z_loss, seed);
      } else {
        widen(values, widened.get(), count);
        losses[static_cast<std::size_t>(row)] = row_loss(widened.get(), count, target[row], z_loss, seed);
        if (seed != 0.0) narrow(widened.get(), values, count);
      }
    }
  });
  return losses;
}

// In the order of rows, whatever the number of threads.
TokenLoss sum_of(const std::vector<RowLoss>& losses, const LossTerms& terms) {
  double loss = 0.0, squares = 0.0;
  float largest = -INFINITY;
  for (const RowLoss& row : losses) {
    loss += row.loss;
    squares += row.log_sum * row.log_sum;
    largest = std::max(largest, row.largest);
  }
  TokenLoss sum{at::full({}, loss, at::kFloat), {}, {}};
  if (terms.z_loss > 0.0) sum.auxiliary_loss = at::full({}, terms.z_loss * squares, at::kFloat);
  if (terms.largest_logit) sum.largest_logit = at::full({}, largest, at::kFloat);
  return sum;
}

at::ScalarType wide_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The loss by plain operators, for other devices and fp64.
TokenLoss by_operators(const at::Tensor& logits, const at::Tensor& targets, const LossTerms& terms, bool gradient,
                       const at::Tensor& seed) {
  const at::Tensor counts = (targets != ignored_target).unsqueeze(1);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor wide = logits.to(wide_type(logits));
  at::Tensor values = at::_log_softmax(wide, 1, /*half_to_float=*/false);
  const at::Tensor zero = at::zeros({}, values.options());
  TokenLoss loss{at::where(counts, values.gather(1, index), zero).sum().neg(), {}, {}};
  if (terms.largest_logit) loss.largest_logit = at::where(counts, wide.amax(1, true), -INFINITY).max();
  at::Tensor log_sums;
  if (terms.z_loss > 0.0) {
    log_sums = at::where(counts, wide.logsumexp(1, true), zero);
    loss.auxiliary_loss = log_sums.square().sum().mul_(terms.z_loss);
  }
  if (gradient) {
    values.exp_();
    if (log_sums.defined()) values.mul_(log_sums.mul(2.0 * terms.z_loss).add_(1.0));
    values.scatter_add_(1, index, at::full({1, 1}, -1.0, values.options()).expand_as(index));
    if (seed.defined()) values.mul_(seed);
    logits.copy_(at::where(counts, values, zero));
  }
  return loss;
}

}  // namespace

TokenLoss empty_loss(const LossTerms& terms, const at::TensorOptions& options) {
  TokenLoss loss{at::empty({}, options), {}, {}};
  if (terms.z_loss > 0.0) loss.auxiliary_loss = at::empty({}, options);
  if (terms.largest_logit) loss.largest_logit = at::empty({}, options);
  return loss;
}

TokenLoss softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, const LossTerms& terms, bool gradient,
                           const at::Tensor& seed) {
  if (logits.is_meta()) return empty_loss(terms, logits.options().dtype(wide_type(logits)));
  if (!logits.is_cpu() || logits.scalar_type() == at::kDouble)
    return by_operators(logits, targets, terms, gradient, seed);
  const double factor = !gradient ? 0.0 : seed.defined() ? seed.item().toDouble() : 1.0;
  std::vector<RowLoss> losses;
  AT_DISPATCH_SWITCH(
      logits.scalar_type(), "softmax_gradient", AT_DISPATCH_CASE(at::kFloat, [&] {
        losses = row_losses<float>(logits, targets, terms.z_loss, factor);
      }) AT_DISPATCH_CASE(at::kBFloat16, [&] {
        losses = row_losses<at::BFloat16>(logits, targets, terms.z_loss, factor);
      }) AT_DISPATCH_CASE(at::kHalf, [&] { losses = row_losses<at::Half>(logits, targets, terms.z_loss, factor); }));
  return sum_of(losses, terms);
}

}  // namespace strata
