#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

// Targets of this value count for nothing.
inline constexpr std::int64_t ignored_target = -100;

// The SUM over rows of the cross entropy of softmax(x weight^T) against targets: fp32, 0-dimensional (fp64 for fp64).
//   x [rows, n], weight [vocabulary, n] of one dtype; targets int64 [rows]
// Differentiable, also on meta tensors. Throws UserError naming the target when one is neither in the vocabulary nor
// -100 (checked where targets are in host memory).
//
// [Note: chunked loss] The logits [rows, vocabulary] are most of a small model's memory, and their gradient is as much
// again. Here they exist for `chunk` rows at a time: under gradients, forward turns a chunk's logits into their
// gradient in place and multiplies it at once with x and weight, so no matmul is done twice; backward multiplies what
// was found by the loss's seed. What is kept is the gradient of x and the smaller of two things: the gradient of weight
// (fp32, vocabulary x n), or, when rows are fewer, the logits' gradient (vocabulary x rows) in the dtype of x, from
// which backward makes the weight's. Without gradients nothing but the loss is computed.
//
// chunk: rows; 0 means default_loss_chunk.
//
// [Note: loss seed] seed: what backward will be given as the result's gradient (MicroBatch::loss_seed), or 1 when that
// is not known. The logits' gradient is made before backward says it, and in fp16 most of its elements, softmax over a
// vocabulary, would round to 0 there: fp16 tensors therefore get it multiplied by the seed in fp32 first, which is what
// a loss scale is for. Of other types it stays unscaled, so that their results do not depend on the seed bit by bit. A
// gradient other than the seed is still right: backward multiplies by the one over the other.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t chunk = 0, double seed = 1.0);

// What linear_cross_entropy keeps for backward: x's gradient, and what [Note: chunked loss] says. Where it keeps the
// logits' gradient it also keeps x, which is counted here too.
std::int64_t linear_cross_entropy_bytes(std::int64_t rows, std::int64_t n, std::int64_t vocabulary,
                                        at::ScalarType dtype);

// The fewest rows that cost no measurable time against the whole matrix at once, in equal chunks: at most 512 rows of
// fp32 or fp64, 1024 of half precision (whose matmuls take less time, so that adding up the weight's gradient once a
// chunk weighs more). Measured with 2048 rows, n = 768, vocabulary 50304 on a CPU with AMX: 2048 rows at once take 1.0
// to 1.6 times the time of the default, 64 rows 1.7 (fp32) and 5 (bf16) times.
std::int64_t default_loss_chunk(std::int64_t rows, at::ScalarType dtype);

// The same by plain operators and autograd, the whole matrix at once: what linear_cross_entropy is tested against.
at::Tensor linear_cross_entropy_reference(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets);

}  // namespace strata
