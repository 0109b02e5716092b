#include "step/stage.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::runtime {

namespace {
auto find_layer(const std::vector<StageLayer>& layers, int number) {
  return std::find_if(layers.begin(), layers.end(),
                      [number](const StageLayer& layer) { return layer.number == number; });
}
}  // namespace

StageLayer& StageState::layer(int number) {
  const auto found = find_layer(layers, number);
  if (found == layers.end()) throw Bug("layer " + std::to_string(number) + " is not on stage " + std::to_string(stage));
  return layers[static_cast<std::size_t>(found - layers.begin())];
}

bool StageState::holds(int number) const {
  return find_layer(layers, number) != layers.end();
}

}  // namespace strata::runtime
