// Operations of tensor-parallel models, in addition to ModelContext's column_linear() and row_linear(): see [Note:
// tensor parallelism]. On one rank each is the plain operation. All are [collective] over the tensor group, in forward
// and in backward, differentiable, and work on meta tensors.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/model.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>

#include <cstdint>

namespace strata {

// Gathers the stream [stream_rows, n] to all rows [rows, n], before work that the ranks share: without sequence
// parallelism x itself. Backward sums the ranks' gradients.
at::Tensor all_rows(const at::Tensor& x, ModelContext& context);
// Sums the ranks' results for all rows, [rows, n], and returns the stream's rows of the sum; without sequence
// parallelism all rows.
at::Tensor sum_to_stream(const at::Tensor& x, ModelContext& context);
// Returns the stream's rows of x [rows, n], which is equal on all ranks; rows beyond the last are zeros. Communicates
// in neither direction: the gradient of x is that of this rank's rows (TensorGradient::OfStream).
at::Tensor stream_rows_of(const at::Tensor& x, ModelContext& context);

// Returns the stream's rows of an embedding whose rows are cut (Split padded): weight's tensor is [this rank's part,
// n], tokens any shape of rows() numbers. Throws UserError naming a token outside of the vocabulary.
at::Tensor vocabulary_embedding(const Parameter& weight, const at::Tensor& tokens, ModelContext& context);
// Computes linear_cross_entropy() of the stream x [stream_rows, n] with a head whose rows are cut (Split padded): the
// loss of all rows, equal on all ranks. Sums are fp32. (Shoeybi et al., section 3)
TokenLoss vocabulary_cross_entropy(const at::Tensor& x, const Parameter& weight, const MicroBatch& batch,
                                   const LossTerms& terms, ModelContext& context);
// Returns LayerOutput::logits of a head whose rows are cut, for batch.asked_rows: see linear_logits().
at::Tensor vocabulary_logits(const at::Tensor& x, const Parameter& weight, const MicroBatch& batch,
                             ModelContext& context);
// Returns the bytes that vocabulary_cross_entropy saves for backward.
std::int64_t vocabulary_cross_entropy_bytes(const BatchShape& batch, std::int64_t n, std::int64_t vocabulary);

}  // namespace strata
