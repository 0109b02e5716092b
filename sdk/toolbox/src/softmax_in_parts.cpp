#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "softmax_gradient.hpp"

namespace strata {

// Plain operators: a row's maximum, its sum of exponentials and its target's logit are the only numbers that travel.
TokenLoss softmax_gradient_in_parts(const at::Tensor& logits, const at::Tensor& targets, const LossTerms& terms,
                                    bool gradient, const at::Tensor& seed, const VocabularyPart& part) {
  const at::Tensor wide = logits.to(logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, false, true);
  if (wide.is_meta()) {  // what travels is counted
    part.group->all_reduce(wide.select(1, 0).contiguous(), ReduceOperation::Max).wait();
    part.group->all_reduce(wide.new_empty({2, wide.size(0)}), ReduceOperation::Sum).wait();
    return empty_loss(terms, wide.options());
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
  TokenLoss loss{at::where(valid, sum.log().sub_(sums.select(0, 1)), 0.0).sum(), {}, {}};
  if (terms.largest_logit) loss.largest_logit = at::where(valid, largest, -INFINITY).max();
  at::Tensor log_sums;
  if (terms.z_loss > 0.0) {
    log_sums = at::where(valid, sum.log().add_(largest), 0.0);
    loss.auxiliary_loss = log_sums.square().sum().mul_(terms.z_loss);
  }
  if (!gradient) return loss;
  at::Tensor slope = sum.reciprocal();
  if (log_sums.defined()) slope.mul_(log_sums.mul(2.0 * terms.z_loss).add_(1.0));
  wide.mul_(at::where(valid, slope, 0.0).unsqueeze(1));
  wide.scatter_add_(1, column, here.unsqueeze(1).to(wide.scalar_type()).neg_());
  if (seed.defined()) wide.mul_(seed);
  logits.copy_(wide);
  return loss;
}

}  // namespace strata
