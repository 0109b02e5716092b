#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/gradient.hpp>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// table[tokens[i]] += rows[i], in the order of i.
void add_rows(at::Tensor table, const at::Tensor& tokens, const at::Tensor& rows) {
  const at::Tensor values = rows.to(table.scalar_type());
  if (table.is_meta()) return;
  if (table.is_cpu()) {
    table.index_add_(0, tokens, values);
  } else {
    table.index_put_({tokens}, values, /*accumulate=*/true);  // sorts first; index_add_ adds in any order there
  }
}

class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& tokens) {
    context->saved_data["weight"] =
        weight;  // for its .grad and shape: not saved for backward, as its values are not needed
    context->save_for_backward({tokens});
    if (weight.is_meta()) return at::empty({tokens.numel(), weight.size(1)}, weight.options());
    return weight.index_select(0, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const at::Tensor tokens = context->get_saved_variables()[0];
    if (accumulates_in_place(weight)) {
      add_rows(weight.grad(), tokens, gradients[0]);
      return {{}, {}};
    }
    const at::Tensor table = at::zeros_like(weight);
    add_rows(table, tokens, gradients[0]);
    return {table, {}};
  }
};

}  // namespace

void check_tokens(const at::Tensor& tokens, std::int64_t vocabulary) {
  if (!tokens.is_cpu()) return;
  const std::int64_t* values = tokens.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    if (values[i] >= 0 && values[i] < vocabulary) continue;
    throw UserError(
        "token {} at position {} of the micro-batch is outside the model's vocabulary of {}; use data of the model's "
        "tokenizer, or a larger vocabulary",
        values[i], i, vocabulary);
  }
}

at::Tensor embedding_rows(const at::Tensor& weight, const at::Tensor& tokens) {
  const at::Tensor list = tokens.contiguous().view(-1);
  check_tokens(list, weight.size(0));
  std::vector<std::int64_t> shape(tokens.sizes().begin(), tokens.sizes().end());
  shape.push_back(weight.size(1));
  return Embedding::apply(weight, list).view(shape);
}

}  // namespace strata
