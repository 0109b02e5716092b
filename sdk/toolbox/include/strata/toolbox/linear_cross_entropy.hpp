#pragma once
#include <ATen/core/Tensor.h>
#include <strata/group.hpp>

#include <cstdint>

namespace strata {

// Value of targets that are ignored.
inline constexpr std::int64_t ignored_target = -100;

// Rows [first, first + rows) of a vocabulary of `whole` rows; further rows of a weight are padding.
struct VocabularyPart {
  Group* group = nullptr;  // null: the weight has the whole vocabulary
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t whole = 0;
};

// Settings of the loss, and terms added to it.
struct LossTerms {
  std::int64_t chunk = 0;  // rows of logits that exist at a time; 0: default_loss_chunk
  // Weight of the z-loss, which keeps logits small: the square of log(sum of exp(logits)), for each row with a target
  // (Chowdhery et al., arXiv 2204.02311, section 5).
  double z_loss = 0.0;
  bool largest_logit = false;  // true: compute TokenLoss::largest_logit
};

// Loss of some tokens: fp32, 0-dimensional (fp64 for fp64).
struct TokenLoss {
  at::Tensor loss;            // SUM over rows of the cross entropies
  at::Tensor auxiliary_loss;  // SUM over rows of the weighted z-loss; undefined if LossTerms::z_loss is 0
  at::Tensor largest_logit;   // over the rows with a target; -infinity without any; undefined unless requested
};

// Returns the loss of softmax(x weight^T) and targets.
//   x [rows, n], weight [vocabulary, n] of one dtype; targets int64 [rows]
// Differentiable, also on meta tensors; backward must give `loss` and `auxiliary_loss` the same gradient, as the engine
// does. Throws UserError naming a target that is neither in the vocabulary nor -100 (checked if targets are in host
// memory).
//
// [Note: chunked loss] The logits [rows, vocabulary] take most of a small model's memory, and their gradient as much
// again. Here they exist for only `chunk` rows at a time. If gradients are enabled, forward turns a chunk's logits into
// their gradient in place and multiplies it at once with x and weight, so no matmul runs twice; backward multiplies the
// results by the loss's seed. Kept for backward are the gradient of x and the smaller of two tensors: the gradient of
// weight (fp32, vocabulary x n), or the logits' gradient (vocabulary x rows) in the dtype of x, from which backward
// computes the weight's. Without gradients only the loss is computed.
//
// [Note: loss seed] seed: the gradient of the result that backward will get (MicroBatch::loss_seed), or undefined.
// The logits' gradient is computed before backward. In fp16 most of its elements, a softmax over the vocabulary, would
// round to 0, so it is multiplied by the seed (the loss scale) in fp32 first. For other dtypes it stays unscaled, so
// that its bits do not depend on the seed. If backward gets another gradient than the seed, it multiplies by the ratio
// of the two.
//
// part: if it has a group, `weight` holds this rank's rows of the vocabulary, and the other ranks of the group hold the
// rest. x, targets and the result are equal on all ranks; each chunk's softmax sums are reduced over the ranks. The
// gradient of x is only this rank's share; the whole gradient is the sum over the ranks. [collective] over the group
TokenLoss linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                               const LossTerms& terms = {}, const at::Tensor& seed = {},
                               const VocabularyPart& part = {});

// Returns LayerOutput::logits for some rows of x. rows: their indices, int64 [count]. Result: fp32 (fp64 for fp64)
// [count, vocabulary], the whole vocabulary on every rank even if weight is a part. Rounded like the logits of the
// loss. No gradients. [collective] over the group
at::Tensor linear_logits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rows,
                         const VocabularyPart& part = {});

// Returns the bytes that linear_cross_entropy saves for backward, see [Note: chunked loss]; includes x if it saves the
// logits' gradient.
std::int64_t linear_cross_entropy_bytes(std::int64_t rows, std::int64_t n, std::int64_t vocabulary,
                                        at::ScalarType dtype);

// Returns the smallest chunk that is not measurably slower than the whole matrix, in equal chunks: at most 512 rows in
// fp32 or fp64, 1024 in half precision (whose matmuls are faster, so that accumulating the weight's gradient once per
// chunk costs relatively more). Measured with 2048 rows, n = 768, vocabulary 50304 on a CPU with AMX: 2048 rows at once
// take 1.0 to 1.6 times the time of the default, 64 rows 1.7 (fp32) and 5 (bf16) times.
std::int64_t default_loss_chunk(std::int64_t rows, at::ScalarType dtype);

// Computes the loss with plain operators and autograd on the whole matrix: the reference for tests.
TokenLoss linear_cross_entropy_reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                         const LossTerms& terms = {});

}  // namespace strata
