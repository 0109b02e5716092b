// Causal self-attention. All functions are differentiable, also on meta tensors, where they keep as many bytes for
// backward as on the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace strata {

// Cosines and sines of position x frequency; one table for all layers of a model. Thread-safe.
class RotaryTable {
 public:
  // `dimensions`: the number of leading dimensions of a head to rotate, even; 0 rotates nothing.
  RotaryTable(std::int64_t dimensions, double base);
  std::int64_t dimensions() const { return dimensions_; }
  // {cosines, sines}, each [positions, dimensions / 2] fp32 on `device`; computed once for each device and length.
  std::pair<at::Tensor, at::Tensor> at(std::int64_t positions, const at::Device& device);

 private:
  std::int64_t dimensions_;
  double base_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::int64_t>, std::pair<at::Tensor, at::Tensor>> tables_;
};

// Queries, keys and values, each [batch, heads, positions, head size].
struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

// Splits the output of one projection, qkv [batch * positions, heads * 3 * head size] with q, k and v adjacent within
// each head, into rotated queries, rotated keys and values. OVERWRITES qkv: it is rotated in place and the results are
// views of it, so that only qkv itself is kept. Do not read qkv afterwards (autograd reports an overwritten saved
// tensor).
Heads split_heads(const at::Tensor& qkv, std::int64_t batch, std::int64_t heads, RotaryTable& table);

// Rotates the first table.dimensions() of the last dimension of x [batch, positions, heads, head size]: with d =
// dimensions / 2, dimension i < d is paired with dimension i + d (the half-split form). Uses plain operators and a new
// tensor: the reference for split_heads.
at::Tensor rotary_embedding(const at::Tensor& x, RotaryTable& table);

// softmax(query key^T / sqrt(head size)) value with a causal mask, by libtorch's scaled_dot_product_attention (fp16 on
// the CPU: computed in fp32, see [Note: fp16 products]). The result is [batch, heads, positions, head size], stored as
// [batch, positions, heads, head size].
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

}  // namespace strata
