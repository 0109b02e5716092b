#include <ATen/TensorOperators.h>

#include <sstream>

#include "conformance/optimizer/checks.hpp"
#include "conformance/optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

void decays(Subject& subject) {
  for (const OptionSpec& option : subject.manifest().options) {
    if (option.name != "weight_decay" || option.type != "number") continue;
    const auto after = [&](const char* decay) {
      std::mt19937_64 random = subject.random("optimizer.goes_down");
      const auto plugin = subject.make<Optimizer>({{"weight_decay", decay}});
      const ParameterTensors parameter = make_parameter(*plugin, "layer.weight", {24, 16}, {}, random);
      Piece piece = parameter.whole();
      for (int t = 0; t < 3; ++t) fakes::update(*plugin, piece, scalars_of(0.01, t));
      return parameter.master;
    };
    require(!difference(after("0"), after("0.25"), false).empty(),
            "the option weight_decay at 0 and at 0.25 gives the same three steps");
  }
}

}  // namespace

void goes_down(Subject& subject) {
  decays(subject);
  std::mt19937_64 random = subject.random("optimizer.goes_down");
  std::ostringstream tried;
  for (const double learning_rate : {1.0, 0.1, 0.01, 0.001}) {
    const auto plugin = subject.make<Optimizer>();
    const ParameterTensors parameter = make_parameter(*plugin, "layer.weight", {16, 24}, {}, random);
    const at::Tensor lowest = draw_gradient(parameter.elements(), random);
    const auto loss = [&] { return (parameter.master - lowest).square().sum().item<double>(); };
    const double first = loss();
    for (int t = 0; t < 200; ++t) {
      parameter.gradient.copy_(parameter.master - lowest);
      Piece piece = parameter.whole();
      fakes::update(*plugin, piece, scalars_of(learning_rate, t));
    }
    const double last = loss();
    if (last < 0.7 * first) return;
    tried << (tried.str().empty() ? "" : ", ") << learning_rate << ": from " << first << " to " << last;
  }
  throw Failure("the squared distance to a point over 200 steps along its gradient, by learning rate: " + tried.str() +
                "; with one of these rates it must fall below 0.7 of its start. Is the sign of the update wrong?");
}

}  // namespace strata::conformance::optimizer_checks
