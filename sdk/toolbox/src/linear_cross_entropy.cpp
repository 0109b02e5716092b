#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/nll_loss.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/rows.hpp>
#include <strata/toolbox/gradient.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/product.hpp>

#include "softmax_gradient.hpp"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}
at::ScalarType wide(const at::Tensor& x) {
  return wide(x.scalar_type());
}

// Whether the logits' gradient is smaller than the weight's.
bool keeps_logits(std::int64_t rows, std::int64_t n, at::ScalarType dtype) {
  return rows * static_cast<std::int64_t>(c10::elementSize(dtype)) <=
         n * static_cast<std::int64_t>(c10::elementSize(wide(dtype)));
}

void check_targets(const at::Tensor& targets, std::int64_t vocabulary) {
  if (!targets.is_cpu()) return;
  const std::int64_t* values = targets.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (values[i] == ignored_target || (values[i] >= 0 && values[i] < vocabulary)) continue;
    throw UserError(
        "target {} at position {} of the micro-batch is outside the model's vocabulary of {} and not -100 (ignored); "
        "the data was made with another tokenizer, or the model's vocabulary is too small",
        values[i], i, vocabulary);
  }
}

// What forward works out for backward; undefined where not wanted.
struct Gradients {
  at::Tensor x;       // [rows, n]
  at::Tensor weight;  // [vocabulary, n], wide
  at::Tensor logits;  // [rows, vocabulary], instead of `weight` where it is smaller
};

// Rows of a weight's gradient that are added at a time where types differ: libtorch adds a half-precision tensor to a
// wider one by way of a wide copy.
constexpr std::int64_t rows_of_logits = 1024;

// The loss of no rows.
TokenLoss no_loss(const LossTerms& terms, const at::TensorOptions& options) {
  TokenLoss loss = empty_loss(terms, options);
  loss.loss.zero_();
  if (loss.auxiliary_loss.defined()) loss.auxiliary_loss.zero_();
  if (loss.largest_logit.defined()) loss.largest_logit.fill_(-INFINITY);
  return loss;
}

void add(TokenLoss& total, const TokenLoss& part) {
  total.loss.add_(part.loss);
  if (total.auxiliary_loss.defined()) total.auxiliary_loss.add_(part.auxiliary_loss);
  if (total.largest_logit.defined()) total.largest_logit.clamp_min_(part.largest_logit);
}

// In a struct, so that autograd does not take the seed for an input.
struct Setting {
  LossTerms terms;
  at::Tensor seed;
  VocabularyPart vocabulary;
};

// The loss of all rows; fills the defined members of `gradients`, times the seed where it is defined.
TokenLoss chunked_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                       const Gradients& gradients, const Setting& setting) {
  const LossTerms& terms = setting.terms;
  const bool wanted = gradients.x.defined() || gradients.weight.defined() || gradients.logits.defined();
  const std::int64_t rows = x.size(0), chunk = terms.chunk;
  at::Tensor buffer;
  if (!gradients.logits.defined()) buffer = at::empty({std::min(chunk, rows), weight.size(0)}, x.options());
  TokenLoss loss = no_loss(terms, x.options().dtype(wide(x)));
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t length = std::min(chunk, rows - begin);
    const at::Tensor part = x.narrow(0, begin, length);
    const at::Tensor logits =
        buffer.defined() ? buffer.narrow(0, 0, length) : gradients.logits.narrow(0, begin, length);
    product_out(logits, part, weight.t());
    const at::Tensor list = targets.narrow(0, begin, length);
    add(loss, setting.vocabulary.group == nullptr
                  ? softmax_gradient(logits, list, terms, wanted, setting.seed)
                  : softmax_gradient_in_parts(logits, list, terms, wanted, setting.seed, setting.vocabulary));
    if (gradients.x.defined()) product_out(gradients.x.narrow(0, begin, length), logits, weight);
    // In half precision the gradient is wider, and the product rounded at most once a chunk, as autograd rounds once.
    if (gradients.weight.defined()) add_product(gradients.weight, logits.t(), part, /*first=*/begin == 0);
  }
  return loss;
}

// target += gradient * seed, without a second table of the target's size.
void add_scaled(at::Tensor target, const at::Tensor& gradient, const at::Tensor& seed) {
  if (target.dtype() == gradient.dtype()) {
    target.addcmul_(gradient, seed);
    return;
  }
  for (std::int64_t begin = 0; begin < target.size(0); begin += rows_of_logits) {
    const std::int64_t length = std::min(rows_of_logits, target.size(0) - begin);
    target.narrow(0, begin, length).add_(gradient.narrow(0, begin, length) * seed);
  }
}

// The weight's gradient from what forward kept, added in place where that can be. Rows of padding have none.
at::Tensor weight_gradient(const at::Tensor& weight, const Gradients& kept, const at::Tensor& x,
                           const at::Tensor& seed) {
  const std::int64_t rows = kept.weight.defined() ? kept.weight.size(0) : kept.logits.size(1);
  if (!accumulates_in_place(weight)) {
    const at::Tensor gradient =
        kept.weight.defined() ? (kept.weight * seed).to(weight.scalar_type()) : product(kept.logits.t(), x * seed);
    return rows == weight.size(0) ? gradient : at::constant_pad_nd(gradient, {0, 0, 0, weight.size(0) - rows});
  }
  const at::Tensor into = weight.grad().narrow(0, 0, rows);
  if (kept.weight.defined()) {
    add_scaled(into, kept.weight, seed);
  } else {
    add_product(into, kept.logits.t(), x * seed);
  }
  return {};
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  // Returns the loss, and the other members of TokenLoss that are defined.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& targets, bool gradients, const Setting& setting) {
    const at::Tensor values =
        setting.vocabulary.group == nullptr ? weight : weight.narrow(0, 0, setting.vocabulary.rows);
    Gradients kept;
    if (gradients && x.requires_grad()) kept.x = at::empty_like(x);
    if (gradients && weight.requires_grad()) {
      if (keeps_logits(x.size(0), x.size(1), x.scalar_type())) {
        kept.logits = at::empty({x.size(0), values.size(0)}, x.options());
      } else {
        kept.weight = at::empty(values.sizes(), weight.options().dtype(wide(x)));
      }
    }
    const TokenLoss loss = chunked_loss(x, values, targets, kept, setting);
    context->saved_data["weight"] = weight;  // for its .grad: not saved for backward, as its values are not needed
    context->saved_data["seed"] = setting.seed;
    context->save_for_backward({kept.x, kept.weight, kept.logits, kept.logits.defined() ? x : at::Tensor()});
    variable_list results{loss.loss};
    if (loss.auxiliary_loss.defined()) results.push_back(loss.auxiliary_loss);
    context->saved_data["losses"] = static_cast<std::int64_t>(results.size());
    if (loss.largest_logit.defined()) {
      results.push_back(loss.largest_logit);
      context->mark_non_differentiable({loss.largest_logit});
    }
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (context->saved_data["losses"].toInt() == 2 && gradients[0].is_cpu())
      strata_check(gradients[0].equal(gradients[1]), "loss and auxiliary loss have the same gradient");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor applied = context->saved_data["seed"].toTensor();
    const at::Tensor seed = applied.defined() ? gradients[0].div(applied) : gradients[0];
    at::Tensor x_gradient, weight_part;
    if (context->needs_input_grad(0)) x_gradient = saved[0] * seed;
    if (context->needs_input_grad(1)) {
      const at::Tensor weight = context->saved_data["weight"].toTensor();
      weight_part = weight_gradient(weight, {{}, saved[1], saved[2]}, saved[3], seed);
    }
    return {x_gradient, weight_part, {}, {}, {}};
  }
};

}  // namespace

std::int64_t linear_cross_entropy_bytes(std::int64_t rows, std::int64_t n, std::int64_t vocabulary,
                                        at::ScalarType dtype) {
  const auto width = static_cast<std::int64_t>(c10::elementSize(dtype));
  if (keeps_logits(rows, n, dtype)) return (2 * n + vocabulary) * rows * width;
  return rows * n * width + vocabulary * n * static_cast<std::int64_t>(c10::elementSize(wide(dtype)));
}

std::int64_t default_loss_chunk(std::int64_t rows, at::ScalarType dtype) {
  const std::int64_t most = 2048 / static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t chunks = (rows + most - 1) / most;
  return chunks == 0 ? 1 : (rows + chunks - 1) / chunks;
}

TokenLoss linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                               const LossTerms& terms, const at::Tensor& seed, const VocabularyPart& part) {
  strata_check(
      x.dim() == 2 && weight.dim() == 2 && x.size(1) == weight.size(1) && targets.sizes() == x.sizes().slice(0, 1),
      "linear_cross_entropy: x is [rows, n], weight [vocabulary, n], targets [rows]");
  const at::Tensor list = targets.contiguous();
  check_targets(list, part.group == nullptr ? weight.size(0) : part.whole);
  Setting setting{terms, x.scalar_type() == at::kHalf ? seed : at::Tensor(), part};
  if (terms.chunk <= 0) setting.terms.chunk = default_loss_chunk(x.size(0), x.scalar_type());
  const bool gradients = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  const variable_list results = LinearCrossEntropy::apply(x.contiguous(), weight, list, gradients, setting);
  TokenLoss loss{results[0], {}, {}};
  if (terms.z_loss > 0.0) loss.auxiliary_loss = results[1];
  if (terms.largest_logit) loss.largest_logit = results.back();
  return loss;
}

at::Tensor linear_logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rows,
                         const VocabularyPart& part) {
  const c10::NoGradGuard no_grad;
  const at::Tensor logits = product(x.index_select(0, rows), weight.t());
  if (part.group == nullptr) return logits.to(wide(x));
  // By tokens, of which the last ranks' weights may have rows of padding.
  return gather_rows(*part.group, logits.t().contiguous(), part.whole).wait().t().to(wide(x)).contiguous();
}

TokenLoss linear_cross_entropy_reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                         const LossTerms& terms) {
  const at::Tensor logits = at::linear(x, weight).to(wide(x));
  TokenLoss loss{at::nll_loss(at::log_softmax(logits, 1), targets, {}, at::Reduction::Sum, ignored_target), {}, {}};
  const at::Tensor valid = logits.index_select(0, targets.ne(ignored_target).nonzero().view(-1));
  if (terms.z_loss > 0.0) loss.auxiliary_loss = valid.logsumexp(1).square().sum() * terms.z_loss;
  if (terms.largest_logit)
    loss.largest_logit = valid.numel() > 0 ? valid.detach().max() : at::full({}, -INFINITY, logits.options());
  return loss;
}

}  // namespace strata
