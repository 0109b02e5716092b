#include <ATen/ops/equal.h>

#include <optional>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

// Three steps by a fresh instance.
ParameterTensors result(Subject& subject, const fakes::OptionTexts& options, const ParameterTensors& start,
                        std::optional<double> momentum = {}) {
  const auto plugin = subject.make<Optimizer>(options);
  ParameterTensors parameter = start.clone();
  std::mt19937_64 random(1);
  for (std::int64_t t = 0; t < 3; ++t) {
    parameter.gradient.copy_(draw_gradient(parameter.elements(), random));
    Piece piece = parameter.whole();
    StepScalars scalars = scalars_of(0.01, t);
    scalars.momentum = momentum;
    fakes::update(*plugin, piece, scalars);
  }
  return parameter;
}

}  // namespace

void scheduled_momentum(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.scheduled_momentum");
  fakes::OptionTexts low, high;  // at a momentum of 0.5 and of 0.75
  for (const OptionSpec& option : subject.manifest().options) {
    if (option.name == "momentum") low = {{"momentum", "0.5"}}, high = {{"momentum", "0.75"}};
    if (option.name == "betas") low = {{"betas", "[0.5, 0.95]"}}, high = {{"betas", "[0.75, 0.95]"}};
  }
  with_optimizer(subject, low, [&](Optimizer& optimizer) {
    if (!optimizer.takes_momentum()) throw Skip("takes_momentum() is false");
    const ParameterTensors start = make_parameter(optimizer, "layer.weight", {19, 11}, {}, random);
    const auto after = [&](const fakes::OptionTexts& options, std::optional<double> momentum) {
      return result(subject, options, start, momentum);
    };
    require(!difference(after(low, 0.5), after(low, 0.75)).empty(),
            "takes_momentum() is true, but StepScalars::momentum of 0.5 and of 0.75 gives the same three steps");
    if (low.empty()) return;  // how its own momentum is spelled is not known
    const std::string found = difference(after(low, 0.75), after(high, {}));
    require(found.empty(), "StepScalars::momentum 0.75 with the option at 0.5, and the option at 0.75: " + found +
                               "; a given momentum replaces the option's, also in bias corrections");
  });
}

void changes_parameters(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.changes_parameters");
  with_optimizer(subject, {}, [&](Optimizer& optimizer) {
    const ParameterTensors start = make_parameter(optimizer, "layer.weight", {24, 16}, {.copy = at::kBFloat16}, random);
    const ParameterTensors after = result(subject, {}, start);
    require(!at::equal(after.master, start.master) && !at::equal(after.copy, start.copy),
            "three steps with a learning rate of 0.01 and gradients of about 1 did not change the given master and "
            "parameter; write into them");
    for (const OptionSpec& option : subject.manifest().options)
      if (option.name == "weight_decay" && option.type == "number")
        require(!difference(result(subject, {{"weight_decay", "0"}}, start),
                            result(subject, {{"weight_decay", "0.25"}}, start))
                     .empty(),
                "the option weight_decay at 0 and at 0.25 gives the same three steps");
  });
}

}  // namespace strata::conformance::optimizer_checks
