#include "tools/plan/model_shape.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace strata::cli {

namespace {

constexpr std::int64_t head_size = 64;
constexpr std::int64_t widest = 1 << 20;  // hidden_size; such a model of one layer has 10^13 parameters
constexpr double usual_aspect = 128.0;    // hidden_size / layers
constexpr double largest_aspect = 1024.0;

// For each width the number of layers that comes nearest.
std::vector<ModelShape> candidates(std::int64_t parameters, const CountParameters& count) {
  std::vector<ModelShape> shapes;
  for (std::int64_t hidden = head_size; hidden <= widest; hidden += head_size) {
    ModelShape shape{hidden, 1, hidden / head_size, 0};
    const std::int64_t one = count(shape);
    shape.layers = 2;
    const std::int64_t layer = count(shape) - one;
    strata_check(layer > 0, "a model grows with its layers");
    shape.layers = std::max<std::int64_t>(
        1, std::llround(static_cast<double>(parameters - (one - layer)) / static_cast<double>(layer)));
    shape.parameters = one + layer * (shape.layers - 1);
    const bool flat = static_cast<double>(hidden) > largest_aspect * static_cast<double>(shape.layers);
    if (!shapes.empty() && (flat || one > parameters)) break;  // wider ones have fewer layers still
    shapes.push_back(shape);
  }
  return shapes;
}

double error_of(const ModelShape& shape, std::int64_t parameters) {
  return std::abs(static_cast<double>(shape.parameters) / static_cast<double>(parameters) - 1.0);
}

double aspect_error(const ModelShape& shape) {
  return std::abs(std::log(static_cast<double>(shape.hidden_size) / static_cast<double>(shape.layers) / usual_aspect));
}

std::string described(const ModelShape& shape) {
  return format("{} (hidden_size {}, layers {})", shape.parameters, shape.hidden_size, shape.layers);
}

}  // namespace

ModelShape shape_model(std::int64_t parameters, const CountParameters& count) {
  const std::vector<ModelShape> shapes = candidates(parameters, count);
  for (const double bound : {0.001, 0.01}) {
    const ModelShape* best = nullptr;
    for (const ModelShape& shape : shapes)
      if (error_of(shape, parameters) <= bound && (best == nullptr || aspect_error(shape) < aspect_error(*best)))
        best = &shape;
    if (best != nullptr) return *best;
  }
  const ModelShape nearest = *std::min_element(
      shapes.begin(), shapes.end(),
      [&](const ModelShape& a, const ModelShape& b) { return error_of(a, parameters) < error_of(b, parameters); });
  throw UserError(
      "--params {}: no transformer with heads of {} comes within 1 % of it; the nearest has {}: give that number, or "
      "change the size of the embedding with --set model.vocabulary=N",
      parameters, head_size, described(nearest));
}

}  // namespace strata::cli
