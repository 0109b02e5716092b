#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "softmax_gradient.hpp"

namespace strata {

// Plain operators: a row's maximum, its sum of exponentials and its target's logit are the only numbers that travel.
at::Tensor softmax_gradient_in_parts(const at::Tensor& logits, const at::Tensor& targets, bool gradient,
                                     const at::Tensor& seed, const VocabularyPart& part) {
  const at::Tensor wide = logits.to(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, false, true);
  if (wide.is_meta()) {  // what travels is counted
    part.group->all_reduce(wide.select(1, 0).contiguous(), ReduceOperation::Max).wait();
    part.group->all_reduce(wide.new_empty({2, wide.size(0)}), ReduceOperation::Sum).wait();
    return wide.new_empty({});
  }
  const at::Tensor valid = targets.ne(ignored_target);
  const at::Tensor here = targets.ge(part.first).logical_and_(targets.lt(part.first + part.rows));
  const at::Tensor column = at::where(here, targets - part.first, 0).unsqueeze(1);
  const at::Tensor largest = wide.amax(1);
  part.group->all_reduce(largest, ReduceOperation::Max).wait();
  wide.sub_(largest.unsqueeze(1));
  const at::Tensor of_target = at::where(here, wide.gather(1, column).squeeze(1), 0.0);
  wide.exp_();
  const at::Tensor sums = at::stack({wide.sum(1), of_target});
  part.group->all_reduce(sums, ReduceOperation::Sum).wait();
  const at::Tensor sum = sums.select(0, 0);
  const at::Tensor loss = at::where(valid, sum.log().sub_(sums.select(0, 1)), 0.0).sum();
  if (!gradient) return loss;
  wide.mul_(at::where(valid, sum.reciprocal(), 0.0).unsqueeze(1));
  wide.scatter_add_(1, column, here.unsqueeze(1).to(wide.scalar_type()).neg_());
  if (seed.defined()) wide.mul_(seed);
  logits.copy_(wide);
  return loss;
}

}  // namespace strata
