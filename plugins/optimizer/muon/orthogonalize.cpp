#include "orthogonalize.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <utility>

namespace strata::muon {

namespace {

struct Step {
  double a, b, c;
};
constexpr std::array<Step, 1> quintic{{{3.4445, -4.7750, 2.0315}}};
constexpr std::array<Step, 5> polar_express{{{8.1566, -22.4833, 15.8788},
                                             {4.0429, -2.8089, 0.5000},
                                             {3.8917, -2.7725, 0.5061},
                                             {3.2858, -2.3681, 0.4645},
                                             {2.3465, -1.7098, 0.4232}}};
constexpr double smallest_norm = 1e-7;
constexpr double margin = 1.01;  // of polar_express, whose first step has none for rounding

}  // namespace

at::Tensor orthogonalize(const at::Tensor& matrix, std::int64_t steps, Coefficients coefficients,
                         at::ScalarType dtype) {
  const bool express = coefficients == Coefficients::PolarExpress;
  const bool tall = matrix.size(0) > matrix.size(1);  // the product with itself is the smaller one
  at::Tensor x = (tall ? matrix.t() : matrix).to(dtype);
  x = x.div(x.norm().mul(express ? margin : 1.0).clamp_min(smallest_norm)).contiguous();
  for (std::int64_t i = 0; i < steps; ++i) {
    const std::size_t last = express ? polar_express.size() - 1 : 0,
                      number = std::min(static_cast<std::size_t>(i), last);
    const auto [a, b, c] = express ? polar_express[number] : quintic[number];
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return (tall ? x.t() : x).to(at::kFloat);
}

}  // namespace strata::muon
