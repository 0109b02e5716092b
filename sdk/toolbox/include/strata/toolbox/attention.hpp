// Causal self-attention. All functions are differentiable, also on meta tensors, where they save the same number of
// bytes for backward as on the CPU.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace strata {

// Slowing of the rotary frequencies of a model that was trained on shorter sequences. None: no change. Linear: all by
// `factor`. Llama3: wavelengths above original_positions / low_frequency_factor by `factor`, wavelengths below
// original_positions / high_frequency_factor unchanged, interpolated between them (rope_type "llama3").
struct RotaryScaling {
  enum class Kind { None, Linear, Llama3 };
  Kind kind = Kind::None;
  double factor = 1.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  std::int64_t original_positions = 8192;
  bool operator==(const RotaryScaling&) const = default;
};

// Cosines and sines of position x frequency; one table for all layers of a model. Thread-safe.
class RotaryTable {
 public:
  // Makes a table. `dimensions`: number of leading dimensions of a head to rotate, even; 0 rotates nothing.
  RotaryTable(std::int64_t dimensions, double base, RotaryScaling scaling = {});
  std::int64_t dimensions() const { return dimensions_; }
  // Returns {cosines, sines}, each [positions, dimensions / 2] fp32 on `device`; computed once per device and length.
  std::pair<at::Tensor, at::Tensor> at(std::int64_t positions, const at::Device& device);

 private:
  float frequency(std::int64_t pair) const;

  std::int64_t dimensions_;
  double base_;
  RotaryScaling scaling_;
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

// Returns x [batch * positions, heads * head size] as rotated heads [batch, heads, positions, head size]. OVERWRITES x,
// as split_heads() does.
at::Tensor rotated_heads(const at::Tensor& x, std::int64_t batch, std::int64_t head_size, RotaryTable& table);

// Rotates the first table.dimensions() of the last dimension of x [batch, positions, heads, head size]: with d =
// dimensions / 2, dimension i < d is paired with dimension i + d (the half-split form). Uses plain operators and a new
// tensor: the reference for split_heads and rotated_heads.
at::Tensor rotary_embedding(const at::Tensor& x, RotaryTable& table);

// Dropout of attention probabilities, see dropout(): an element's number is that of (sample, head, query, key) in the
// global batch and all heads of the model; first_sample and first_head are the first ones here.
struct AttentionDropout {
  double probability = 0.0;
  at::Tensor key;
  std::int64_t draw = 0;
  std::int64_t first_sample = 0;
  std::int64_t first_head = 0;
  std::int64_t heads = 0;
};

// Returns softmax(query key^T / sqrt(head size)) value with a causal mask, by libtorch's scaled_dot_product_attention
// (fp16 on the CPU: computed in fp32, see [Note: 16-bit products]). The result is [batch, heads, positions, head size],
// stored as [batch, positions, heads, head size]. With fewer heads of keys and values, each serves an equal number of
// consecutive query heads (Ainslie et al., arXiv 2305.13245). With dropout the probabilities [batch, heads, positions,
// positions] are computed and saved.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionDropout& dropout = {});

}  // namespace strata
