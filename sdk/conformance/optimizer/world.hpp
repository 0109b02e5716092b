// Random updates of an optimizer: parameters of all formats and settings, cut anywhere, on several instances.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "conformance/drawn/draws.hpp"
#include "conformance/optimizer/parameter_tensors.hpp"

namespace strata::conformance {

struct DrawnParameter {
  PieceInfo info;
  Formats formats;
  double learning_rate_factor = 1.0;
  std::optional<double> weight_decay;
  std::vector<std::int64_t> borders;  // borders of its pieces
};

enum class Gradients { Usual, WithZeros, OfAllSizes, NotFinite };

struct DrawnStep {
  bool apply = true;
  double learning_rate = 0.01;
  double gradient_factor = 1.0;  // a power of two
  std::optional<double> momentum;
  Gradients gradients = Gradients::Usual;
};

struct OptimizerWorld {
  fakes::OptionTexts options;
  int instances = 1;
  std::vector<DrawnParameter> parameters;
  std::int64_t updates = 0;  // number of earlier updates
  std::vector<DrawnStep> steps;
  int restart = 0;  // all instances are created anew before this step; 0: never
};

// Draws everything except the pieces, which need the plugin's units.
OptimizerWorld draw_updates(Draws& draws, const Subject& subject);
void draw_pieces(Draws& draws, const Optimizer& optimizer, OptimizerWorld& world);
// Returns the gradient of a whole parameter at a step, rounded to its format.
at::Tensor gradient_of(const OptimizerWorld& world, std::size_t parameter, std::size_t step);

std::string to_string(const OptimizerWorld& world);

}  // namespace strata::conformance
