#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/toolbox/gradient.hpp>
#include <strata/toolbox/rms_norm.hpp>

#include <algorithm>
#include <cmath>

#include "floating_types.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The weight's gradient is summed by blocks of so many rows first, so that it does not depend on threads.
constexpr std::int64_t rows_of_block = 32;

// x, y [rows, n]; scale [rows]: 1 / sqrt(mean(x^2) + epsilon).
void forward_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon, const at::Tensor& y,
                    const at::Tensor& scale) {
  with_types_of(x, [&]<class Scalar, class Wide>(Scalar, Wide) {
    const std::int64_t rows = x.size(0), n = x.size(1);
    const Scalar* const from = x.const_data_ptr<Scalar>();
    const Scalar* const factors = weight.const_data_ptr<Scalar>();
    Scalar* const into = y.mutable_data_ptr<Scalar>();
    Wide* const scales = scale.mutable_data_ptr<Wide>();
    at::parallel_for(0, rows, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Scalar* const a = from + row * n;
        Wide sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < n; ++i) sum += static_cast<Wide>(a[i]) * static_cast<Wide>(a[i]);
        const Wide r = 1 / std::sqrt(sum / static_cast<Wide>(n) + static_cast<Wide>(epsilon));
        scales[row] = r;
        for (std::int64_t i = 0; i < n; ++i)
          into[row * n + i] = static_cast<Scalar>(static_cast<Wide>(static_cast<Scalar>(static_cast<Wide>(a[i]) * r)) *
                                                  static_cast<Wide>(factors[i]));
      }
    });
  });
}

// d weight [blocks, n] is a sum for each block of rows; undefined: not wanted, as dx.
void backward_on_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale,
                     const at::Tensor& dx, const at::Tensor& dweight) {
  with_types_of(x, [&]<class Scalar, class Wide>(Scalar, Wide) {
    const std::int64_t rows = x.size(0), n = x.size(1);
    const Scalar* const gradients = dy.const_data_ptr<Scalar>();
    const Scalar* const from = x.const_data_ptr<Scalar>();
    const Scalar* const factors = weight.const_data_ptr<Scalar>();
    const Wide* const scales = scale.const_data_ptr<Wide>();
    Scalar* const into = dx.defined() ? dx.mutable_data_ptr<Scalar>() : nullptr;
    Wide* const sums = dweight.defined() ? dweight.mutable_data_ptr<Wide>() : nullptr;
    at::parallel_for(0, (rows + rows_of_block - 1) / rows_of_block, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin * rows_of_block; row < std::min(end * rows_of_block, rows); ++row) {
        const Scalar *const a = from + row * n, *const g = gradients + row * n;
        const Wide r = scales[row];
        if (into != nullptr) {
          Wide dot = 0;
#pragma omp simd reduction(+ : dot)
          for (std::int64_t i = 0; i < n; ++i)
            dot += static_cast<Wide>(g[i]) * static_cast<Wide>(factors[i]) * static_cast<Wide>(a[i]);
          const Wide along = dot * r * r / static_cast<Wide>(n);
          for (std::int64_t i = 0; i < n; ++i)
            into[row * n + i] = static_cast<Scalar>(
                r * (static_cast<Wide>(g[i]) * static_cast<Wide>(factors[i]) - along * static_cast<Wide>(a[i])));
        }
        if (sums == nullptr) continue;
        Wide* const sum = sums + row / rows_of_block * n;
        for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<Wide>(g[i]) * (static_cast<Wide>(a[i]) * r);
      }
    });
  });
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    at::Tensor y = at::empty_like(x);
    at::Tensor scale = at::empty({x.size(0)}, x.options().dtype(wide_type(x)));
    if (x.is_cpu()) {
      forward_on_cpu(x, weight.contiguous(), epsilon, y, scale);
    } else if (!x.is_meta()) {
      const at::Tensor wide = x.to(scale.scalar_type());
      scale = wide.square().mean(1).add(epsilon).rsqrt();
      y = (wide * scale.unsqueeze(1)).to(x.scalar_type()) * weight;
    }
    context->save_for_backward({x, weight, scale});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2], dy = gradients[0].contiguous();
    const bool wants_x = context->needs_input_grad(0), wants_weight = context->needs_input_grad(1);
    at::Tensor dx, dweight;
    if (x.is_cpu() || x.is_meta()) {
      if (wants_x) dx = at::empty_like(x);
      if (wants_weight)
        dweight = at::zeros({(x.size(0) + rows_of_block - 1) / rows_of_block, x.size(1)}, scale.options());
      if (x.is_cpu()) backward_on_cpu(dy, x, weight.contiguous(), scale, dx, dweight);
      if (wants_weight) dweight = dweight.sum(0);
    } else {
      const at::Tensor wide = x.to(scale.scalar_type()), r = scale.unsqueeze(1), g = dy.to(scale.scalar_type());
      const at::Tensor weighted = g * weight;
      if (wants_x) dx = (r * (weighted - wide * ((weighted * wide).mean(1, true) * r * r))).to(x.scalar_type());
      if (wants_weight) dweight = (g * wide * r).sum(0);
    }
    if (dweight.defined() && !accumulates_in_place(weight)) dweight = dweight.to(weight.scalar_type());
    return {dx, accumulate_gradient(weight, dweight), {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight, epsilon).view(x.sizes());
}

}  // namespace strata
