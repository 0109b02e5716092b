#pragma once
#include <cstdint>
#include <functional>

namespace strata::cli {

// Sizes of a transformer.
struct ModelShape {
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t parameters = 0;  // number of parameters of this shape
};

// Returns the number of parameters of a model of that shape, without reading ModelShape::parameters. It grows by the
// same number with each layer.
using CountParameters = std::function<std::int64_t(const ModelShape&)>;

// Returns a transformer with about `parameters` parameters: heads of 64 elements, a hidden_size that is a multiple of
// 64, and of all shapes within 0.1 % (or else 1 %) the one whose hidden_size / layers is nearest 128, as in large
// published models. Throws UserError naming the nearest shape if none is within 1 %.
ModelShape shape_model(std::int64_t parameters, const CountParameters& count);

}  // namespace strata::cli
