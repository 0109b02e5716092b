#include <strata/model.hpp>

namespace strata {

ModelContext::~ModelContext() = default;

Group* ModelContext::group(Axis) {
  return nullptr;
}

Tensors ModelContext::column_linear(const at::Tensor& x, const std::vector<Weight>& weights) {
  Tensors products;
  for (const Weight& one : weights) products.push_back(linear(x, *one.weight, one.bias));
  return products;
}

at::Tensor ModelContext::row_linear(const at::Tensor& x, const Weight& weight) {
  return linear(x, *weight.weight, weight.bias);
}

Layer::~Layer() = default;
Model::~Model() = default;

}  // namespace strata
