#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/toolbox/attention.hpp>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [batch, heads, positions, size] over memory that lies as [batch, positions, heads, size], as libtorch's flash kernels
// make it.
at::Tensor empty_heads(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

// What scaled_dot_product_attention makes and keeps on the CPU and with CUDA's flash kernel: a libtorch without Python
// has no meta kernels of it.
class MetaAttention : public torch::autograd::Function<MetaAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
    const at::Tensor output = empty_heads(query);
    const auto statistics = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor log_sums =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(statistics));
    context->save_for_backward({query, key, value, output, log_sums});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    const variable_list saved = context->get_saved_variables();
    return {empty_heads(saved[0]), empty_heads(saved[1]), empty_heads(saved[2])};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (query.is_meta()) return MetaAttention::apply(query, key, value);
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
}

}  // namespace strata
