#include "norm_gradients.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <vector>

#include "wide_rows.hpp"

namespace strata {
namespace {

constexpr std::int64_t rows_of_block = 32;
constexpr std::int64_t lanes = 8;  // longer ones are kept in memory where a processor has none
using Vector [[gnu::vector_size(lanes * sizeof(float)), gnu::aligned(sizeof(float)), gnu::may_alias]] = float;

inline const Vector& vector_at(const float* values) {
  return *reinterpret_cast<const Vector*>(values);
}

// x and dy of one row, and the forward's values of it.
struct Row {
  const float* x;
  const float* dy;
  float mean;
  float scale;
  std::int64_t n;
  bool is_centred;
};

// The gradient of the row is written, those of weight and bias are added to.
STRATA_VECTOR_CLONES void backward_of_row(const Row& row, const float* __restrict weight, float* __restrict dx,
                                          float* __restrict dweight, float* __restrict dbias) {
  const float* const __restrict x = row.x, * const __restrict dy = row.dy;
  const float mean = row.mean, scale = row.scale;
  Vector plain_sums{}, along_sums{};
  std::int64_t i = 0;
  for (; i + lanes <= row.n; i += lanes) {
    const Vector g = vector_at(dy + i) * vector_at(weight + i);
    plain_sums += g;
    along_sums += g * ((vector_at(x + i) - mean) * scale);
  }
  float plain = 0.0F, along = 0.0F;  // dy times weight, and times the normalized x
  for (; i < row.n; ++i) {
    const float g = dy[i] * weight[i];
    plain += g;
    along += g * ((x[i] - mean) * scale);
  }
  for (std::int64_t k = 0; k < lanes; ++k) {
    plain += plain_sums[k];
    along += along_sums[k];
  }
  const auto n = static_cast<float>(row.n);
  const float of_all = row.is_centred ? plain / n : 0.0F, of_x = along / n;
#pragma GCC ivdep
  for (i = 0; i < row.n; ++i) {
    const float g = dy[i], normalized = (x[i] - mean) * scale;
    dweight[i] += g * normalized;
    dbias[i] += g;
    dx[i] = scale * (g * weight[i] - of_all - normalized * of_x);
  }
}

// sums [blocks, 2, n].
template <class Scalar>
void backward_on_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                     const at::Tensor& weight, const at::Tensor& dx, const at::Tensor& sums) {
  const std::int64_t n = weight.numel(), rows = scale.numel();
  const Scalar *const gradients = dy.const_data_ptr<Scalar>(), *const values = x.const_data_ptr<Scalar>();
  const float* const means = mean.defined() ? mean.const_data_ptr<float>() : nullptr;
  const float *const scales = scale.const_data_ptr<float>(), *const factors = weight.const_data_ptr<float>();
  Scalar* const into = dx.mutable_data_ptr<Scalar>();
  float* const all_sums = sums.mutable_data_ptr<float>();
  at::parallel_for(0, sums.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> buffers(static_cast<std::size_t>(3 * n));
    float *const of_x = buffers.data(), *const of_dy = of_x + n, *const of_dx = of_dy + n;
    for (std::int64_t i = begin * rows_of_block; i < std::min(end * rows_of_block, rows); ++i) {
      const Row row{widened(values + i * n, of_x, n),
                    widened(gradients + i * n, of_dy, n),
                    means != nullptr ? means[i] : 0.0F,
                    scales[i],
                    n,
                    means != nullptr};
      float* const sum = all_sums + i / rows_of_block * 2 * n;
      float* const result = room_for(into + i * n, of_dx);
      backward_of_row(row, factors, result, sum, sum + n);
      narrow_into(into + i * n, result, n);
    }
  });
}

}  // namespace

NormGradients norm_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                             const at::Tensor& weight) {
  const at::Tensor dx = at::empty_like(x);
  const at::Tensor sums =
      at::zeros({(scale.numel() + rows_of_block - 1) / rows_of_block, 2, weight.numel()}, scale.options());
  if (x.is_cpu()) {
    const at::Tensor factors = weight.to(at::kFloat).contiguous();
    with_type_of(x, [&]<class Scalar>(Scalar) { backward_on_cpu<Scalar>(dy, x, mean, scale, factors, dx, sums); });
  }
  return {dx, sums.sum(0)};
}

}  // namespace strata
