#include "softmax_gradient.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
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

// One row's loss; with a seed other than 0 its logits become seed (softmax - one_hot(target)).
double row_loss(float* logits, std::int64_t count, std::int64_t target, double seed) {
  const double target_logit = logits[target];
  const float shift = largest(logits, count);
  const double sum = exponentials(logits, count, shift);
  if (seed != 0.0) {
    multiply(logits, count, static_cast<float>(seed / sum));
    logits[target] -= static_cast<float>(seed);
  }
  return std::log(sum) + shift - target_logit;
}

// Row by row, so that a row's passes but the first find it in cache.
template <class Scalar>
double rows_loss(const at::Tensor& logits, const at::Tensor& targets, double seed) {
  const std::int64_t rows = logits.size(0), count = logits.size(1);
  Scalar* const data = logits.mutable_data_ptr<Scalar>();
  const std::int64_t* const target = targets.const_data_ptr<std::int64_t>();
  std::vector<double> losses(static_cast<std::size_t>(rows),
                             0.0);  // summed in one order, whatever the number of threads
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::unique_ptr<float[]> widened;
    if (!std::is_same_v<Scalar, float>) widened = std::make_unique<float[]>(static_cast<std::size_t>(count));
    for (std::int64_t row = begin; row < end; ++row) {
      Scalar* const values = data + row * count;
      if (target[row] == ignored_target) {
        if (seed != 0.0) std::fill_n(values, count, Scalar(0.0F));
      } else if constexpr (std::is_same_v<Scalar, float>) {
        losses[static_cast<std::size_t>(row)] = row_loss(values, count, target[row], seed);
      } else {
        widen(values, widened.get(), count);
        losses[static_cast<std::size_t>(row)] = row_loss(widened.get(), count, target[row], seed);
        if (seed != 0.0) narrow(widened.get(), values, count);
      }
    }
  });
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum;
}

// The same by plain operators, for other devices and fp64.
at::Tensor by_operators(const at::Tensor& logits, const at::Tensor& targets, bool gradient, const at::Tensor& seed) {
  const at::Tensor counts = (targets != ignored_target).unsqueeze(1);
  const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
  const auto wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor values = at::_log_softmax(logits.to(wide), 1, /*half_to_float=*/false);
  const at::Tensor zero = at::zeros({}, values.options());
  const at::Tensor loss = at::where(counts, values.gather(1, index), zero).sum().neg();
  if (gradient) {
    values.exp_().scatter_add_(1, index, at::full({1, 1}, -1.0, values.options()).expand_as(index));
    if (seed.defined()) values.mul_(seed);
    logits.copy_(at::where(counts, values, zero));
  }
  return loss;
}

}  // namespace

at::Tensor softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, bool gradient,
                            const at::Tensor& seed) {
  if (logits.is_meta())
    return at::empty({}, logits.options().dtype(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  if (!logits.is_cpu() || logits.scalar_type() == at::kDouble) return by_operators(logits, targets, gradient, seed);
  const double factor = !gradient ? 0.0 : seed.defined() ? seed.item().toDouble() : 1.0;
  double loss = 0.0;
  AT_DISPATCH_SWITCH(logits.scalar_type(), "softmax_gradient", AT_DISPATCH_CASE(at::kFloat, [&] {
                       loss = rows_loss<float>(logits, targets, factor);
                     }) AT_DISPATCH_CASE(at::kBFloat16, [&] {
                       loss = rows_loss<at::BFloat16>(logits, targets, factor);
                     }) AT_DISPATCH_CASE(at::kHalf, [&] { loss = rows_loss<at::Half>(logits, targets, factor); }));
  return at::full({}, loss, at::kFloat);
}

}  // namespace strata
