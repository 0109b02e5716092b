#pragma once
#include <cstdint>
#include <functional>

namespace strata::cli {

// A transformer in numbers.
struct ModelShape {
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t parameters = 0;  // that such a model has
};

// The parameters of a model of that shape; ModelShape::parameters is not read. Grows by the same number with each
// layer.
using CountParameters = std::function<std::int64_t(const ModelShape&)>;

// A transformer of about `parameters`: heads of 64 elements, hidden_size a multiple of 64, and of all shapes within 0.1
// % (where there are none, within 1 %) the one whose hidden_size / layers is nearest 128, as in large published models.
// Throws UserError naming the nearest where none comes within 1 %.
ModelShape shape_model(std::int64_t parameters, const CountParameters& count);

}  // namespace strata::cli
