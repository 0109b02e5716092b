#include "conformance/optimizer/world.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace strata::conformance {

namespace {

bool has_option(const Subject& subject, const std::string& name) {
  return std::ranges::any_of(subject.manifest().options,
                             [&](const OptionSpec& option) { return option.name == name && option.type == "number"; });
}

DrawnParameter draw_parameter(Draws& draws, std::size_t number, std::int64_t most, bool decays) {
  DrawnParameter drawn;
  std::vector<std::int64_t> shape{draws.size(most)};
  if (draws.chance(2)) {
    shape.front() = std::min<std::int64_t>(shape.front(), 200);
    shape.push_back(draws.size(std::max<std::int64_t>(most / shape.front(), 1)));
  }
  drawn.info = info_of("p" + std::to_string(number) + ".weight", shape);
  drawn.formats.gradient = draws.pick<at::ScalarType>({at::kFloat, at::kBFloat16, at::kHalf});
  drawn.formats.copy = draws.pick<std::optional<at::ScalarType>>({std::nullopt, at::kBFloat16, at::kHalf, at::kFloat});
  drawn.learning_rate_factor = draws.pick<double>({1.0, 0.5, 4.0, 0.0});
  if (decays) drawn.weight_decay = draws.pick<std::optional<double>>({std::nullopt, 0.0, 0.25});
  return drawn;
}

DrawnStep draw_step(Draws& draws) {
  DrawnStep step;
  step.apply = !draws.chance(6);
  step.learning_rate = draws.pick<double>({0.01, 0.1, 0.0});
  step.gradient_factor = draws.pick<double>({1.0, 0x1p-16, 16.0});
  step.momentum = draws.pick<std::optional<double>>({std::nullopt, std::nullopt, 0.5, 0.75});
  step.gradients = draws.pick<Gradients>(
      {Gradients::Usual, Gradients::Usual, Gradients::WithZeros, Gradients::OfAllSizes, Gradients::NotFinite});
  return step;
}

}  // namespace

OptimizerWorld draw_updates(Draws& draws, const Subject& subject) {
  OptimizerWorld world;
  world.options = draws.options(subject.manifest().options);
  const bool is_large = draws.chance(8);
  const auto parameters = static_cast<std::size_t>(is_large ? 1 : draws.between(1, 4));
  for (std::size_t number = 0; number < parameters; ++number)
    world.parameters.push_back(
        draw_parameter(draws, number, is_large ? 1 << 18 : 1 << 12, has_option(subject, "weight_decay")));
  world.instances = static_cast<int>(draws.between(1, 3));
  world.updates = draws.pick<std::int64_t>({0, 0, 7, 1000});
  const auto steps = static_cast<int>(is_large ? 1 : draws.between(1, 5));
  for (int step = 0; step < steps; ++step) world.steps.push_back(draw_step(draws));
  world.restart = static_cast<int>(draws.between(0, steps - 1));
  return world;
}

void draw_pieces(Draws& draws, const Optimizer& optimizer, OptimizerWorld& world) {
  for (DrawnStep& step : world.steps)
    if (!optimizer.takes_momentum()) step.momentum.reset();
  for (DrawnParameter& parameter : world.parameters) {
    const std::int64_t elements = parameter.info.end;
    const std::int64_t unit = std::clamp<std::int64_t>(optimizer.unit(parameter.info), 1, elements);
    parameter.borders = {0, elements};
    for (std::int64_t cuts = draws.between(0, 4); cuts > 0; --cuts)
      parameter.borders.push_back(unit * draws.between(0, elements / unit));
    std::ranges::sort(parameter.borders);
    parameter.borders.erase(std::unique(parameter.borders.begin(), parameter.borders.end()), parameter.borders.end());
  }
}

at::Tensor gradient_of(const OptimizerWorld& world, std::size_t parameter, std::size_t step) {
  const Gradients kind = world.steps[step].gradients;
  const std::int64_t elements = world.parameters[parameter].info.end;
  const at::Tensor gradient = at::empty({elements}, at::TensorOptions().dtype(at::kFloat));
  auto* const to = gradient.mutable_data_ptr<float>();
  const std::uint64_t key = mixed(parameter + 1, step + 1);
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint64_t random = mixed(key, static_cast<std::uint64_t>(i));
    const float part = static_cast<float>((random >> 8) % 4096) / 4096.0F + 1.0F;
    const int exponent = static_cast<int>((random >> 24) % 14) - 10;  // 1e-3 to 10
    float value = std::ldexp(random % 2 == 0 ? part : -part, exponent);
    if (kind == Gradients::WithZeros && random % 3 != 0) value = 0.0F;
    if (kind == Gradients::OfAllSizes) value = std::ldexp(value, static_cast<int>((random >> 32) % 20) - 10);
    if (kind == Gradients::NotFinite && (random >> 40) % 97 == 0)
      value = random % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    to[i] = value;
  }
  return gradient.to(world.parameters[parameter].formats.gradient);
}

std::string to_string(const OptimizerWorld& world) {
  static const char* const gradients[] = {"", ", gradients with zeros", ", gradients of all sizes",
                                          ", gradients that are not all finite"};
  std::ostringstream text;
  text << "options: " << to_string(world.options) << "; " << count(world.instances, "instance") << "; parameters of";
  for (std::size_t i = 0; i < world.parameters.size(); ++i) {
    const DrawnParameter& one = world.parameters[i];
    text << (i == 0 ? " " : ", ") << "[";
    for (std::size_t k = 0; k < one.info.shape.size(); ++k) text << (k == 0 ? "" : ", ") << one.info.shape[k];
    text << "]";
    if (one.borders.size() > 2) text << " cut at";
    for (std::size_t k = 1; k + 1 < one.borders.size(); ++k) text << " " << one.borders[k];
    if (one.formats.gradient != at::kFloat) text << ", gradient " << c10::toString(one.formats.gradient);
    if (one.formats.copy) text << ", parameter " << c10::toString(*one.formats.copy);
    if (one.learning_rate_factor != 1.0) text << ", learning_rate_factor " << one.learning_rate_factor;
    if (one.weight_decay) text << ", weight_decay " << *one.weight_decay;
  }
  if (world.updates > 0) text << "; after " << world.updates << " updates";
  for (std::size_t i = 0; i < world.steps.size(); ++i) {
    const DrawnStep& step = world.steps[i];
    text << "; step " << i + 1 << ": learning rate " << step.learning_rate;
    if (!step.apply) text << ", apply 0";
    if (step.gradient_factor != 1.0) text << ", gradient_factor " << step.gradient_factor;
    if (step.momentum) text << ", momentum " << *step.momentum;
    text << gradients[static_cast<std::size_t>(step.gradients)];
    if (world.restart > 0 && static_cast<std::size_t>(world.restart) == i) text << ", by new instances";
  }
  return text.str();
}

}  // namespace strata::conformance
