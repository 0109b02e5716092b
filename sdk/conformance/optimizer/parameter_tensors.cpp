#include "conformance/optimizer/parameter_tensors.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace strata::conformance {

Piece ParameterTensors::piece(std::int64_t begin, std::int64_t end) const {
  const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
  Piece piece;
  piece.info = info_of(name, shape);
  piece.info.begin = begin;
  piece.info.end = end;
  piece.master = part(master);
  piece.gradient = part(gradient);
  if (copy.defined()) piece.parameter = part(copy);
  for (std::size_t i = 0; i < state.size(); ++i)
    piece.state.push_back(
        states[i].whole > 0 ? state[i] : state[i].narrow(0, begin / states[i].block, states[i].elements(piece.info)));
  return piece;
}

PieceInfo info_of(const std::string& name, const std::vector<std::int64_t>& shape) {
  ParameterInfo parameter;
  parameter.name = name;
  parameter.shape = shape;
  parameter.linear_only = shape.size() > 1;
  return PieceInfo::whole(parameter);
}

ParameterTensors ParameterTensors::clone() const {
  ParameterTensors other = *this;
  other.master = master.clone();
  other.gradient = gradient.clone();
  if (copy.defined()) other.copy = copy.clone();
  for (at::Tensor& tensor : other.state) tensor = tensor.clone();
  return other;
}

std::vector<std::pair<std::string, at::Tensor>> ParameterTensors::written() const {
  std::vector<std::pair<std::string, at::Tensor>> all{{"master", master}};
  if (copy.defined()) all.emplace_back("parameter", copy);
  for (std::size_t i = 0; i < state.size(); ++i) all.emplace_back("state tensor " + std::to_string(i), state[i]);
  return all;
}

ParameterTensors make_parameter(const Optimizer& optimizer, const std::string& name, std::vector<std::int64_t> shape,
                                const Formats& formats, std::mt19937_64& random) {
  ParameterTensors made;
  made.name = name;
  made.shape = std::move(shape);
  std::int64_t elements = 1;
  for (const std::int64_t extent : made.shape) elements *= extent;
  std::normal_distribution<float> values;
  at::Tensor master = at::empty({elements}, at::kFloat);
  std::generate_n(master.mutable_data_ptr<float>(), elements, [&] { return values(random); });
  made.master = master.to(formats.master);
  made.gradient = draw_gradient(elements, random).to(formats.gradient);
  if (formats.copy) made.copy = at::full({elements}, 77.0, at::TensorOptions().dtype(*formats.copy));
  const PieceInfo info = info_of(made.name, made.shape);
  made.states = optimizer.state(info);
  for (const StateTensor& state : made.states)
    made.state.push_back(at::zeros({state.elements(info)}, at::TensorOptions().dtype(state.dtype)));
  if (optimizer.trains_elsewhere()) {  // there is always a parameter then
    made.copy = at::empty({elements}, at::TensorOptions().dtype(formats.copy.value_or(formats.master)));
    optimizer.write_trained(made.whole());
  }
  return made;
}

at::Tensor draw_gradient(std::int64_t elements, std::mt19937_64& random) {
  at::Tensor gradient = at::empty({elements}, at::kFloat);
  std::uniform_real_distribution<float> exponent(-3.0F, 1.0F);
  std::bernoulli_distribution negative;
  std::generate_n(gradient.mutable_data_ptr<float>(), elements,
                  [&] { return std::pow(10.0F, exponent(random)) * (negative(random) ? -1.0F : 1.0F); });
  return gradient;
}

std::string difference(const at::Tensor& found, const at::Tensor& wanted, bool close) {
  if (found.nbytes() == 0 ||
      std::memcmp(found.const_data_ptr(), wanted.contiguous().const_data_ptr(), found.nbytes()) == 0)
    return "";
  const at::Tensor a = found.to(at::kDouble), b = wanted.to(at::kDouble).contiguous();
  const double largest = close ? b.abs().max().item<double>() : 0.0;
  const auto *const is = a.const_data_ptr<double>(), *const should = b.const_data_ptr<double>();
  for (std::int64_t i = 0; i < b.numel(); ++i) {
    if (is[i] == should[i] || (std::isnan(is[i]) && std::isnan(should[i]))) continue;
    if (close && (std::isnan(largest) || std::abs(is[i] - should[i]) <= 1e-6 * (std::abs(should[i]) + largest)))
      continue;
    std::ostringstream text;
    text.precision(9);
    text << "element " << i << " is " << is[i] << " instead of " << should[i];
    return text.str();
  }
  return "";
}

bool has_sums(const Optimizer& optimizer, const std::vector<std::int64_t>& shape) {
  for (int round = 0; round < optimizer.rounds(); ++round)
    if (optimizer.sums(info_of("layer.weight", shape), round) > 0) return true;
  return false;
}

StepScalars scalars_of(double learning_rate, std::int64_t updates, double gradient_factor, double apply) {
  return {learning_rate, updates, at::full({}, gradient_factor, at::TensorOptions().dtype(at::kFloat)),
          at::full({}, apply, at::TensorOptions().dtype(at::kFloat))};
}

std::string with_options(const fakes::OptionTexts& options) {
  return " (options: " + to_string(options) + ")";
}

std::vector<fakes::OptionTexts> settings_of(const Subject& subject) {
  std::vector<fakes::OptionTexts> settings = subject.settings();
  for (const OptionSpec& option : subject.manifest().options) {
    if (option.type != "number" || std::get<double>(parse_option(option, option.default_text)) != 0.0) continue;
    settings.push_back({{option.name, "0.5"}});
    for (const OptionSpec& flag : subject.manifest().options)
      if (flag.type == "boolean")
        settings.push_back({{option.name, "0.5"}, {flag.name, flag.default_text == "true" ? "false" : "true"}});
  }
  return settings;
}

void with_optimizer(Subject& subject, const fakes::OptionTexts& options, const std::function<void(Optimizer&)>& check) {
  std::optional<fakes::LoadedPlugin<Optimizer>> made;
  try {
    made.emplace(subject.make<Optimizer>(options));
  } catch (const UserError&) {
    return;
  }
  check(**made);
}

}  // namespace strata::conformance
