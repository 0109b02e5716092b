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

at::Tensor head(const at::Tensor& tensor, std::int64_t number) {
  return tensor.select(0, number / tensor.size(1)).select(0, number % tensor.size(1));
}

// Of one head, as libtorch's kernels take it, in fp32.
at::Tensor wide_head(const at::Tensor& tensor, std::int64_t number) {
  return head(tensor, number).to(at::kFloat).unsqueeze(0).unsqueeze(0);
}

// `work` for every head of every sample, on libtorch's threads.
void each_head(const at::Tensor& query, const std::function<void(std::int64_t)>& work) {
  at::parallel_for(0, query.size(0) * query.size(1), 1, [&](std::int64_t begin, std::int64_t end) {
    const c10::NoGradGuard no_gradients;  // a thread of the pool has a mode of its own
    for (std::int64_t number = begin; number < end; ++number) work(number);
  });
}

// Makes and keeps what scaled_dot_product_attention does on the CPU and with CUDA's flash kernel. For meta tensors, of
// which a libtorch without Python has no kernels, and for types whose products are in fp32 (see [Note: 16-bit
// products]), head by head in fp32: a thread's scratch is that of one head.
class AttentionByHeads : public torch::autograd::Function<AttentionByHeads> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
    const at::Tensor output = empty_heads(query);
    const auto statistics = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor log_sums =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(statistics));
    if (!query.is_meta()) {
      each_head(query, [&](std::int64_t number) {
        const auto [y, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
            wide_head(query, number), wide_head(key, number), wide_head(value, number), 0.0, /*is_causal=*/true);
        head(output, number).copy_(y[0][0]);
        head(log_sums, number).copy_(sums[0][0]);
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
    each_head(query, [&](std::int64_t number) {
      const auto parts = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          wide_head(gradients[0], number), wide_head(query, number), wide_head(key, number), wide_head(value, number),
          wide_head(output, number), wide_head(log_sums, number), 0.0, /*is_causal=*/true);
      head(found[0], number).copy_(std::get<0>(parts)[0][0]);
      head(found[1], number).copy_(std::get<1>(parts)[0][0]);
      head(found[2], number).copy_(std::get<2>(parts)[0][0]);
    });
    return found;
  }
};

// [batch, heads, positions, size] of equally many heads.
at::Tensor attention_of_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (query.is_meta() || multiplied_in_fp32(query))
    return AttentionByHeads::apply(query, key, value);
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
