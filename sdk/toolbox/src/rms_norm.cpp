#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <strata/toolbox/gradient.hpp>
#include <strata/toolbox/rms_norm.hpp>
#include <strata/vector_clones.hpp>

#include <cmath>
#include <vector>

#include "floating_types.hpp"
#include "norm_gradients.hpp"
#include "wide_rows.hpp"

namespace strata {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t lanes = 16;  // independent sums, so that the compiler may use vectors

STRATA_VECTOR_CLONES float sum_of_squares(const float* values, std::int64_t count) {
  float partial[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t k = 0; k < lanes; ++k) partial[k] += values[i + k] * values[i + k];
  for (; i < count; ++i) partial[0] += values[i] * values[i];
  float sum = 0.0F;
  for (const float part : partial) sum += part;
  return sum;
}

STRATA_VECTOR_CLONES void scale_by(const float* from, float factor, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

STRATA_VECTOR_CLONES void multiply_by(float* values, const float* factors, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factors[i];
}

// x, y [rows, n]; weight [n] and scale [rows], 1 / sqrt(mean(x^2) + epsilon), in fp32.
template <class Scalar>
void forward_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon, const at::Tensor& y,
                    const at::Tensor& scale) {
  const std::int64_t rows = x.size(0), n = x.size(1);
  const Scalar* const values = x.const_data_ptr<Scalar>();
  const float* const factors = weight.const_data_ptr<float>();
  Scalar* const into = y.mutable_data_ptr<Scalar>();
  float* const scales = scale.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> buffers(static_cast<std::size_t>(2 * n));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const a = widened(values + row * n, buffers.data(), n);
      Scalar* const to = into + row * n;
      float* const result = room_for(to, buffers.data() + n);
      scales[row] = 1.0F / std::sqrt(sum_of_squares(a, n) / static_cast<float>(n) + static_cast<float>(epsilon));
      scale_by(a, scales[row], result, n);
      narrow_into(to, result, n);  // the quotient is rounded
      if (result != reinterpret_cast<float*>(to)) widened(to, result, n);
      multiply_by(result, factors, n);
      narrow_into(to, result, n);
    }
  });
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    at::Tensor y = at::empty_like(x);
    at::Tensor scale = at::empty({x.size(0)}, x.options().dtype(wide_type(x)));
    if (takes_wide_rows(x)) {
      const at::Tensor factors = weight.to(at::kFloat).contiguous();
      with_type_of(x, [&]<class Scalar>(Scalar) { forward_on_cpu<Scalar>(x, factors, epsilon, y, scale); });
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
    at::Tensor dx, dweight;
    if (x.is_meta() || takes_wide_rows(x)) {
      const NormGradients found = norm_gradients(dy, x, {}, scale, weight);
      dx = found.x;
      dweight = found.sums[0];
    } else {
      const at::Tensor wide = x.to(scale.scalar_type()), r = scale.unsqueeze(1), g = dy.to(scale.scalar_type());
      const at::Tensor weighted = g * weight;
      dx = (r * (weighted - wide * ((weighted * wide).mean(1, true) * r * r))).to(x.scalar_type());
      dweight = (g * wide * r).sum(0);
    }
    if (!accumulates_in_place(weight)) dweight = dweight.to(weight.scalar_type());
    return {dx, accumulate_gradient(weight, dweight), {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x.reshape({-1, x.size(-1)}).contiguous(), weight, epsilon).view(x.sizes());
}

}  // namespace strata
