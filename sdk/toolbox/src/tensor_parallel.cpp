#include <strata/toolbox/tensor_parallel.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/error.hpp>
#include <strata/rows.hpp>
#include <strata/toolbox/embedding.hpp>

#include <algorithm>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The two passages between the stream and all rows; each is the other's backward.
at::Tensor gathered(const at::Tensor& x, ModelContext& context) {
  return context.batch().sequence_parallel ? gather_rows(*context.tensor_group(), x, context.batch().rows()).wait() : x;
}
at::Tensor summed(const at::Tensor& x, ModelContext& context) {
  Group& group = *context.tensor_group();
  if (context.batch().sequence_parallel) return sum_into_parts(group, x).wait();
  return sum_rows(group, x.clone(at::MemoryFormat::Contiguous)).wait();
}

void keep(AutogradContext* autograd, ModelContext* context) {
  autograd->saved_data["context"] = reinterpret_cast<std::int64_t>(context);
}
ModelContext& kept(AutogradContext* autograd) {
  return *reinterpret_cast<ModelContext*>(autograd->saved_data["context"].toInt());
}

class AllRows : public torch::autograd::Function<AllRows> {
 public:
  static at::Tensor forward(AutogradContext* autograd, const at::Tensor& x, ModelContext* context) {
    keep(autograd, context);
    return gathered(x, *context);
  }
  static variable_list backward(AutogradContext* autograd, const variable_list& gradients) {
    return {summed(gradients[0], kept(autograd)), {}};
  }
};

class SumToStream : public torch::autograd::Function<SumToStream> {
 public:
  static at::Tensor forward(AutogradContext* autograd, const at::Tensor& x, ModelContext* context) {
    keep(autograd, context);
    return summed(x, *context);
  }
  static variable_list backward(AutogradContext* autograd, const variable_list& gradients) {
    return {gathered(gradients[0], kept(autograd)), {}};
  }
};

VocabularyPart part_of(const Parameter& weight, ModelContext& context) {
  const std::int64_t part = weight.tensor.size(0), first = context.tensor_group()->rank() * part;
  return {context.tensor_group(), first, std::min(part, weight.info.shape[0] - first), weight.info.shape[0]};
}

}  // namespace

at::Tensor all_rows(const at::Tensor& x, ModelContext& context) {
  return context.tensor_group() == nullptr ? x : AllRows::apply(x, &context);
}

at::Tensor sum_to_stream(const at::Tensor& x, ModelContext& context) {
  return context.tensor_group() == nullptr ? x : SumToStream::apply(x, &context);
}

at::Tensor stream_rows_of(const at::Tensor& x, ModelContext& context) {
  const BatchShape& batch = context.batch();
  if (!batch.sequence_parallel) return x;
  const std::int64_t part = batch.stream_rows(), begin = std::min(x.size(0), context.tensor_group()->rank() * part);
  const std::int64_t here = std::min(part, x.size(0) - begin);
  const at::Tensor rows = x.narrow(0, begin, here);
  return here == part ? rows : at::constant_pad_nd(rows, {0, 0, 0, part - here});
}

at::Tensor vocabulary_embedding(const Parameter& weight, const at::Tensor& tokens, ModelContext& context) {
  const at::Tensor list = tokens.reshape({-1});
  if (context.tensor_group() == nullptr) return embedding_rows(weight.tensor, list);
  check_tokens(list, weight.info.shape[0]);
  const VocabularyPart part = part_of(weight, context);
  const at::Tensor here = list.ge(part.first).bitwise_and(list.lt(part.first + part.rows));
  const at::Tensor found = embedding_rows(weight.tensor, (list - part.first) * here);
  return sum_to_stream(found * here.unsqueeze(1), context);
}

TokenLoss vocabulary_cross_entropy(const at::Tensor& x, const Parameter& weight, const MicroBatch& batch,
                                   const LossTerms& terms, ModelContext& context) {
  const at::Tensor targets = batch.targets.reshape({-1});
  if (context.tensor_group() == nullptr) return linear_cross_entropy(x, weight.tensor, targets, terms, batch.loss_seed);
  return linear_cross_entropy(all_rows(x, context), weight.tensor, targets, terms, batch.loss_seed,
                              part_of(weight, context));
}

at::Tensor vocabulary_logits(const at::Tensor& x, const Parameter& weight, const MicroBatch& batch,
                             ModelContext& context) {
  if (context.tensor_group() == nullptr) return linear_logits(x, weight.tensor, batch.asked_rows);
  return linear_logits(all_rows(x, context), weight.tensor, batch.asked_rows, part_of(weight, context));
}

std::int64_t vocabulary_cross_entropy_bytes(const BatchShape& batch, std::int64_t n, std::int64_t vocabulary) {
  const std::int64_t part = rows_of_part(vocabulary, batch.tensor_ranks);
  return linear_cross_entropy_bytes(batch.rows(), n, part, batch.activation);
}

}  // namespace strata
