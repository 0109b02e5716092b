#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/toolbox/attention.hpp>
#include <strata/toolbox/dropout.hpp>
#include <strata/toolbox/product.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [batch, heads, positions, size] over memory that lies as [batch, positions, heads, size], as libtorch's flash kernels
// make it.
at::Tensor empty_heads(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

// Numbers of a tensor that are in fp32 at a time, if that is a head or more: to convert small heads one by one takes
// longer than to mix them.
constexpr std::int64_t converted_at_once = 16 * 1024;

// Some heads of a sample, or all heads of some samples.
struct SomeHeads {
  std::int64_t sample, samples, head, heads;

  at::Tensor of(const at::Tensor& tensor) const {
    const at::Tensor some = samples < tensor.size(0) ? tensor.narrow(0, sample, samples) : tensor;
    return heads < tensor.size(1) ? some.narrow(1, head, heads) : some;
  }
  at::Tensor wide(const at::Tensor& tensor) const { return of(tensor).to(at::kFloat); }
};

// `work` for parts that have every head of every sample in one of them, on libtorch's threads.
void each_part(const at::Tensor& query, const std::function<void(const SomeHeads&)>& work) {
  const std::int64_t samples = query.size(0), heads = query.size(1),
                     fitting = converted_at_once / std::max<std::int64_t>(1, query.size(2) * query.size(3)),
                     heads_at_once = std::clamp<std::int64_t>(fitting, 1, heads),
                     samples_at_once = std::clamp<std::int64_t>(fitting / heads, 1, samples),
                     parts_of_sample = (heads + heads_at_once - 1) / heads_at_once,
                     sample_parts = (samples + samples_at_once - 1) / samples_at_once;
  at::parallel_for(0, sample_parts * parts_of_sample, 1, [&](std::int64_t begin, std::int64_t end) {
    const c10::NoGradGuard no_gradients;  // a thread of the pool has a mode of its own
    for (std::int64_t number = begin; number < end; ++number) {
      const std::int64_t sample = number / parts_of_sample * samples_at_once,
                         head = number % parts_of_sample * heads_at_once;
      work({sample, std::min(samples_at_once, samples - sample), head, std::min(heads_at_once, heads - head)});
    }
  });
}

// Makes and keeps what scaled_dot_product_attention does on the CPU and with CUDA's flash kernel. For meta tensors, of
// which a libtorch without Python has no kernels, and for types whose products are in fp32 (see [Note: 16-bit
// products]), some heads at a time in fp32: a thread's scratch is that of one head, or small.
class AttentionByHeads : public torch::autograd::Function<AttentionByHeads> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
    const at::Tensor output = empty_heads(query);
    const auto statistics = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor log_sums =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(statistics));
    if (!query.is_meta()) {
      each_part(query, [&](const SomeHeads& part) {
        const auto [y, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
            part.wide(query), part.wide(key), part.wide(value), 0.0, /*is_causal=*/true);
        part.of(output).copy_(y);
        part.of(log_sums).copy_(sums);
      });
    }
    context->save_for_backward({query, key, value, output, log_sums});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &value = saved[2], &output = saved[3], &log_sums = saved[4];
    const variable_list found{empty_heads(query), empty_heads(key), empty_heads(value)};
    if (query.is_meta()) return found;
    each_part(query, [&](const SomeHeads& part) {
      const auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part.wide(gradients[0]), part.wide(query), part.wide(key), part.wide(value), part.wide(output),
          part.of(log_sums), 0.0, /*is_causal=*/true);
      part.of(found[0]).copy_(of_query);
      part.of(found[1]).copy_(of_key);
      part.of(found[2]).copy_(of_value);
    });
    return found;
  }
};

// [batch, heads, positions, size] of equally many heads.
at::Tensor attention_of_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (query.is_meta() || multiplied_in_fp32(query)) return AttentionByHeads::apply(query, key, value);
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
}

at::Tensor attention_with_dropout(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const AttentionDropout& drop) {
  const std::int64_t positions = query.size(2), here = query.size(1);
  const at::ScalarType wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor future = at::ones({positions, positions}, query.options().dtype(at::kBool)).triu(1);
  std::vector<at::Tensor> mixed;
  for (std::int64_t sample = 0; sample < query.size(0); ++sample) {
    const at::Tensor scores = at::matmul(query[sample].to(wide), key[sample].to(wide).transpose(1, 2)) /
                              std::sqrt(static_cast<double>(query.size(3)));
    const at::Tensor probabilities = at::softmax(scores.masked_fill(future, -INFINITY), -1);
    const std::int64_t first = ((drop.first_sample + sample) * drop.heads + drop.first_head) * positions * positions;
    mixed.push_back(
        at::matmul(dropout(probabilities, drop.probability, drop.key, drop.draw, first), value[sample].to(wide))
            .to(query.scalar_type()));
  }
  strata_check(drop.first_head + here <= drop.heads, "attention: the heads here are among the model's");
  return at::stack(mixed);
}

at::Tensor attention_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const AttentionDropout& drop) {
  return drop.probability > 0.0 ? attention_with_dropout(query, key, value, drop)
                                : attention_of_heads(query, key, value);
}

}  // namespace

// Heads that share keys and values are taken one of each group at a time, so that no key or value is copied.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionDropout& drop) {
  const std::int64_t shared = key.size(1), of_group = query.size(1) / shared;
  strata_check(of_group * shared == query.size(1), "attention: query heads are a multiple of key heads");
  if (of_group == 1) return attention_of(query, key, value, drop);
  if (drop.probability > 0.0)
    return attention_of(query, key.repeat_interleave(of_group, 1), value.repeat_interleave(of_group, 1), drop);
  const at::Tensor groups = query.view({query.size(0), shared, of_group, query.size(2), query.size(3)});
  std::vector<at::Tensor> mixed;
  for (std::int64_t i = 0; i < of_group; ++i)
    mixed.push_back(attention_of(groups.select(2, i), key, value, drop).transpose(1, 2));
  const at::Tensor together = at::stack(mixed, 3);  // [batch, positions, groups, of group, size]
  return together.flatten(2, 3).transpose(1, 2);
}

}  // namespace strata
