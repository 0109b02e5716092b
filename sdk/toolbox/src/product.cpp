#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <strata/error.hpp>
#include <strata/toolbox/product.hpp>

#include "bf16_product.hpp"
#include "half_precision.hpp"

#include <algorithm>
#include <optional>

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of 16-bit matrices, rows and columns that are in fp32 at a time. Three such blocks are 6.75 MiB. Products of 256 rows
// and widths of 768 and 3072 take 0.92 of the time with blocks of 512; with widths from 512 to 4096 it is 0.99 to 1.01.
constexpr std::int64_t block = 768;

// What the CPU's add_() would make of it inside, where no dry run sees it.
at::Tensor wide_copy(const at::Tensor& part, at::ScalarType wide) {
  return part.is_cpu() || part.is_meta() ? part.to(wide) : part;
}

at::Tensor part(const at::Tensor& matrix, std::int64_t row, std::int64_t column) {
  if (matrix.size(0) <= block && matrix.size(1) <= block) return matrix;
  return matrix.narrow(0, row, std::min(block, matrix.size(0) - row))
      .narrow(1, column, std::min(block, matrix.size(1) - column));
}

// Converts row by row. Both matrices have one shape, and the elements of a row lie together in either.
template <class From, class To>
void convert_rows(const at::Tensor& from, const at::Tensor& to, void (*convert)(const From*, To*, std::int64_t)) {
  const From* source = from.const_data_ptr<From>();
  To* result = to.mutable_data_ptr<To>();
  const std::int64_t columns = from.size(1), from_stride = from.stride(0), to_stride = to.stride(0);
  constexpr std::int64_t elements_worth_a_thread = std::int64_t{1} << 15;
  const std::int64_t rows_worth_a_thread = elements_worth_a_thread / std::max<std::int64_t>(columns, 1) + 1;
  at::parallel_for(0, from.size(0), rows_worth_a_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      convert(source + row * from_stride, result + row * to_stride, columns);
  });
}

// A block in fp32, stored by rows or by columns as it was. libtorch's conversion of 768 by 768 elements of a wider
// matrix takes 1.1 to 1.3 times as long.
at::Tensor widened_block(const at::Tensor& matrix) {
  if (matrix.stride(1) != 1 && matrix.stride(0) == 1) return widened_block(matrix.t()).t();
  if (matrix.stride(1) != 1) return matrix.to(at::kFloat);
  const at::Tensor wide = at::empty(matrix.sizes(), matrix.options().dtype(at::kFloat));
  matrix.scalar_type() == at::kHalf ? convert_rows<at::Half, float>(matrix, wide, widen)
                                    : convert_rows<at::BFloat16, float>(matrix, wide, widen);
  return wide;
}

void round_block(const at::Tensor& wide, const at::Tensor& rounded) {
  if (rounded.stride(1) != 1) {
    rounded.copy_(wide);
  } else if (rounded.scalar_type() == at::kHalf) {
    convert_rows<float, at::Half>(wide, rounded, narrow);
  } else {
    convert_rows<float, at::BFloat16>(wide, rounded, narrow);
  }
}

// See [Note: 16-bit products]. result is of the matrices' dtype or in fp32; bias [n] may be undefined. With `add`,
// which takes a result in fp32, the product is added to it.
void multiply_by_blocks(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right,
                        const at::Tensor& bias, bool add = false) {
  const std::int64_t inner_extent = left.size(1);
  if (result.numel() == 0 || (add && inner_extent == 0)) return;
  const bool rounds = result.scalar_type() != at::kFloat;
  if (result.is_meta()) {  // the scratch of the largest blocks, for as long as a product takes
    const std::int64_t m = std::min(block, result.size(0)), n = std::min(block, result.size(1));
    at::empty({(rounds ? m * n : 0) + (m + n) * std::min(block, inner_extent)}, result.options().dtype(at::kFloat));
    return;
  }
  for (std::int64_t row = 0; row < result.size(0); row += block) {
    for (std::int64_t column = 0; column < result.size(1); column += block) {
      const at::Tensor target = part(result, row, column);
      at::Tensor sum = rounds ? at::empty(target.sizes(), target.options().dtype(at::kFloat)) : target;
      if (bias.defined()) sum.copy_(bias.narrow(0, column, target.size(1)).expand(target.sizes()));
      for (std::int64_t inner = 0; inner == 0 || inner < inner_extent; inner += block) {
        const at::Tensor x = widened_block(part(left, row, inner)), y = widened_block(part(right, inner, column));
        if (inner == 0 && !bias.defined() && !add) {
          at::mm_out(sum, x, y);
        } else {
          sum.addmm_(x, y);
        }
      }
      if (rounds) round_block(sum, target);
    }
  }
}

class LinearByBlocks : public torch::autograd::Function<LinearByBlocks> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b) {
    std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
    shape.back() = w.size(0);
    const at::Tensor y = at::empty(shape, x.options());
    multiply_by_blocks(y.view({-1, w.size(0)}), x.reshape({-1, w.size(1)}), w.t(), b.value_or(at::Tensor()));
    context->save_for_backward({x, w});
    context->saved_data["biased"] = b.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &w = saved[1], dy = gradients[0].reshape({-1, w.size(0)});
    at::Tensor x_gradient, w_gradient, b_gradient;
    if (context->needs_input_grad(0)) x_gradient = product(dy, w).view(x.sizes());
    if (context->needs_input_grad(1)) w_gradient = product(dy.t(), x.reshape({-1, w.size(1)}));
    if (context->saved_data["biased"].toBool() && context->needs_input_grad(2)) b_gradient = dy.sum(0);
    return {x_gradient, w_gradient, b_gradient};
  }
};

}  // namespace

bool multiplied_in_fp32(const at::Tensor& tensor) {
  static const bool with_bf16 = !multiplies_bf16();
  const at::ScalarType dtype = tensor.scalar_type();
  return (tensor.is_cpu() || tensor.is_meta()) && (dtype == at::kHalf || (dtype == at::kBFloat16 && with_bf16));
}

void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  if (multiplied_in_fp32(left)) return multiply_by_blocks(result, left, right, {});
  at::Tensor out = result;
  at::mm_out(out, left, right);
}

at::Tensor product(const at::Tensor& left, const at::Tensor& right) {
  if (!multiplied_in_fp32(left)) return at::mm(left, right);
  const at::Tensor result = at::empty({left.size(0), right.size(1)}, left.options());
  multiply_by_blocks(result, left, right, {});
  return result;
}

void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first) {
  if (first && target.dtype() == left.dtype()) return product_out(target, left, right);
  if (target.dtype() == left.dtype() && !multiplied_in_fp32(left)) {
    target.addmm_(left, right);
    return;
  }
  if (target.scalar_type() == at::kFloat && multiplied_in_fp32(left))
    return multiply_by_blocks(target, left, right, {}, /*add=*/!first);
  if (add_bf16_product(target, left, right, first)) return;
  // By parts, as the CPU adds another dtype by way of a wide copy. Neither that nor the product is as large as the
  // target.
  for (std::int64_t begin = 0; begin < target.size(0); begin += block) {
    const std::int64_t length = std::min(block, target.size(0) - begin);
    const at::Tensor part = product(left.narrow(0, begin, length), right);
    const at::Tensor rows = target.narrow(0, begin, length);
    first ? rows.copy_(part) : rows.add_(wide_copy(part, target.scalar_type()));
  }
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const std::optional<at::Tensor> bias = b.defined() ? std::optional<at::Tensor>(b) : std::nullopt;
  if (!multiplied_in_fp32(x)) return at::linear(x, w, bias);
  strata_check(x.dim() > 0 && w.dim() == 2 && x.size(-1) == w.size(1) && x.dtype() == w.dtype() &&
                   (!b.defined() || (b.dim() == 1 && b.size(0) == w.size(0))),
               "linear: x is [..., in], w [out, in] of the same dtype, b [out]");
  return LinearByBlocks::apply(x, w, bias);
}

}  // namespace strata
