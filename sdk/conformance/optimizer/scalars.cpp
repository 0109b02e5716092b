#include <ATen/TensorOperators.h>

#include <cmath>
#include <limits>

#include "optimizer/checks.hpp"
#include "optimizer/parameter_tensors.hpp"

namespace strata::conformance::optimizer_checks {

namespace {

using Change = std::function<void(Piece&)>;

// Three steps of the same gradients, each gradient multiplied by `scale`; the result is in `parameter`.
void run(Optimizer& optimizer, const ParameterTensors& parameter, const std::vector<at::Tensor>& gradients,
         double scale, double learning_rate, double gradient_factor, const Change& change = {}) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    parameter.gradient.copy_(gradients[t] * scale);
    Piece piece = parameter.whole();
    if (change) change(piece);
    fakes::update(optimizer, piece, scalars_of(learning_rate, static_cast<std::int64_t>(t), gradient_factor));
  }
}

std::vector<at::Tensor> draw_gradients(std::int64_t elements, std::mt19937_64& random) {
  std::vector<at::Tensor> gradients;
  for (int t = 0; t < 3; ++t) gradients.push_back(draw_gradient(elements, random));
  return gradients;
}

// A fresh instance's result.
ParameterTensors result(Subject& subject, const fakes::OptionTexts& options, const ParameterTensors& start,
                        const std::vector<at::Tensor>& gradients, double scale, double learning_rate,
                        double gradient_factor, const Change& change = {}) {
  const auto plugin = subject.make<Optimizer>(options);
  const ParameterTensors copy = start.clone();
  run(*plugin, copy, gradients, scale, learning_rate, gradient_factor, change);
  return copy;
}

}  // namespace

void gradient_factor(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.gradient_factor");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors start = make_parameter(optimizer, "layer.weight", {19, 11}, {}, random);
      const std::vector<at::Tensor> gradients = draw_gradients(start.elements(), random);
      const ParameterTensors plain = result(subject, options, start, gradients, 1.0, 0.01, 1.0);
      for (const double scale : {65536.0, 0.0625}) {
        const ParameterTensors scaled = result(subject, options, start, gradients, scale, 0.01, 1.0 / scale);
        const std::string found = difference(plain, scaled);
        require(found.empty(), "three steps with gradients g, and with gradients " + std::to_string(scale) +
                                   " g and the inverse gradient_factor: " + found + with_options(options) +
                                   "; multiply the gradient by gradient_factor once, before anything else");
      }
    });
  }
}

void apply_zero(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.apply_zero");
  constexpr double infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors skipping = make_parameter(optimizer, "layer.weight", {37, 5}, {.copy = at::kHalf}, random);
      const ParameterTensors plain = skipping.clone();
      const auto uninterrupted = subject.make<Optimizer>(options);
      for (int t = 0; t < 3; ++t) {
        const at::Tensor gradient = draw_gradient(plain.elements(), random);
        for (const double bad : {nan, infinite, -infinite, 1.0}) {
          const ParameterTensors before = skipping.clone();
          skipping.gradient.copy_(gradient);
          skipping.gradient.narrow(0, static_cast<std::int64_t>(random() % 180), 3).fill_(bad);
          Piece piece = skipping.whole();
          fakes::update(optimizer, piece, scalars_of(0.01, t, bad, 0.0));
          const std::string found = difference(before, skipping);
          require(found.empty(), "with apply 0, and three gradients and gradient_factor " + std::to_string(bad) + ": " +
                                     found + " before and after" + with_options(options) +
                                     "; with apply 0 a step must write nothing, neither state nor parameter");
        }
        for (const auto& [parameter, instance] : {std::pair(skipping, &optimizer), std::pair(plain, &*uninterrupted)}) {
          parameter.gradient.copy_(gradient);
          Piece piece = parameter.whole();
          fakes::update(*instance, piece, scalars_of(0.01, t));
        }
        const std::string found = difference(skipping, plain);
        require(found.empty(), "a step after four steps with apply 0, and the same step alone: " + found +
                                   with_options(options) + "; the plugin must not count a step with apply 0");
      }
    });
  }
}

void learning_rate_zero(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.learning_rate_zero");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors start = make_parameter(optimizer, "layer.weight", {19, 11}, {}, random);
      const ParameterTensors after =
          result(subject, options, start, draw_gradients(start.elements(), random), 1.0, 0.0, 1.0);
      ParameterTensors expected = start;  // the state may change
      expected.state = after.state;
      const std::string found = difference(expected, after);
      require(found.empty(),
              "three steps with a learning rate of 0: " + found + " before and after" + with_options(options) +
                  "; every change of a parameter, also weight decay, must be multiplied by the learning rate");
    });
  }
}

void learning_rate_factor(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.learning_rate_factor");
  for (const fakes::OptionTexts& options : settings_of(subject)) {
    with_optimizer(subject, options, [&](Optimizer& optimizer) {
      const ParameterTensors start = make_parameter(optimizer, "layer.weight", {19, 11}, {}, random);
      const std::vector<at::Tensor> gradients = draw_gradients(start.elements(), random);
      for (const double factor : {0.5, 4.0, 0.0}) {
        const ParameterTensors by_piece = result(subject, options, start, gradients, 1.0, 0.01, 1.0,
                                                 [&](Piece& piece) { piece.learning_rate_factor = factor; });
        const ParameterTensors by_step = result(subject, options, start, gradients, 1.0, 0.01 * factor, 1.0);
        const std::string found = difference(by_piece, by_step);
        require(found.empty(), "learning_rate_factor " + std::to_string(factor) +
                                   " with a learning rate of 0.01, and their product as "
                                   "the learning rate: " +
                                   found + with_options(options) +
                                   "; multiply StepScalars::learning_rate by learning_rate_factor");
      }
    });
  }
}

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
    const std::vector<at::Tensor> gradients = draw_gradients(start.elements(), random);
    const auto after = [&](const fakes::OptionTexts& options, std::optional<double> momentum) {
      const auto plugin = subject.make<Optimizer>(options);
      const ParameterTensors parameter = start.clone();
      for (std::size_t t = 0; t < gradients.size(); ++t) {
        parameter.gradient.copy_(gradients[t]);
        Piece piece = parameter.whole();
        StepScalars scalars = scalars_of(0.01, static_cast<std::int64_t>(t));
        scalars.momentum = momentum;
        fakes::update(*plugin, piece, scalars);
      }
      return parameter;
    };
    require(!difference(after(low, 0.5), after(low, 0.75)).empty(),
            "takes_momentum() is true, but StepScalars::momentum of 0.5 and of 0.75 gives the same three steps");
    if (low.empty()) return;  // how its own momentum is spelled is not known
    const std::string found = difference(after(low, 0.75), after(high, {}));
    require(found.empty(), "StepScalars::momentum 0.75 with the option at 0.5, and the option at 0.75: " + found +
                               "; a given momentum replaces the option's, also in bias corrections");
  });
}

void weight_decay_of_a_piece(Subject& subject) {
  std::mt19937_64 random = subject.random("optimizer.weight_decay_of_a_piece");
  bool known = false;
  for (const OptionSpec& option : subject.manifest().options)
    known = known || (option.name == "weight_decay" && option.type == "number");
  if (!known) throw Skip("the optimizer has no number option weight_decay, so pieces never have their own");
  const fakes::OptionTexts none{{"weight_decay", "0"}}, some{{"weight_decay", "0.25"}};
  with_optimizer(subject, {}, [&](Optimizer& optimizer) {
    const ParameterTensors start = make_parameter(optimizer, "layer.weight", {19, 11}, {}, random);
    const std::vector<at::Tensor> gradients = draw_gradients(start.elements(), random);
    const auto with = [&](const fakes::OptionTexts& options, std::optional<double> own) {
      return result(subject, options, start, gradients, 1.0, 0.01, 1.0,
                    [&](Piece& piece) { piece.weight_decay = own; });
    };
    require(!difference(with(none, {}), with(some, {})).empty(),
            "the option weight_decay at 0 and at 0.25 gives the same three steps");
    std::string found = difference(with(none, 0.25), with(some, {}));
    require(found.empty(), "a piece's weight_decay 0.25 with the option at 0, and the option at 0.25: " + found +
                               "; a piece's own weight_decay replaces the option's");
    found = difference(with(some, 0.0), with(none, {}));
    require(found.empty(), "a piece's weight_decay 0 with the option at 0.25, and the option at 0: " + found +
                               "; a piece's weight_decay of 0 means none; only an empty one means the option's");
  });
}

}  // namespace strata::conformance::optimizer_checks
