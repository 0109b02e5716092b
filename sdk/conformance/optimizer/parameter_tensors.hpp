// What the cases give to an optimizer: all tensors of a parameter; pieces are ranges of them.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/optimizer.hpp>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

struct Formats {
  at::ScalarType master = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  std::optional<at::ScalarType> copy;  // of the parameter; none: the master is the parameter
};

struct ParameterTensors {
  std::string name;
  std::vector<std::int64_t> shape;
  at::Tensor master;
  at::Tensor gradient;
  at::Tensor copy;  // undefined where the master is the parameter
  std::vector<at::Tensor> state;
  std::vector<StateTensor> states;  // what `state` are

  std::int64_t elements() const { return master.numel(); }
  // Begins at a multiple of the optimizer's unit.
  Piece piece(std::int64_t begin, std::int64_t end) const;
  Piece whole() const { return piece(0, elements()); }
  ParameterTensors clone() const;
  // Every tensor with its name, the gradient left out.
  std::vector<std::pair<std::string, at::Tensor>> written() const;
};

// All of a parameter; matrices are weights of products.
PieceInfo info_of(const std::string& name, const std::vector<std::int64_t>& shape);

// Random values of about 1, state zero.
ParameterTensors make_parameter(const Optimizer& optimizer, const std::string& name, std::vector<std::int64_t> shape,
                                const Formats& formats, std::mt19937_64& random);
// The next step's gradient: of magnitudes 1e-3 to 10, none zero.
at::Tensor draw_gradient(std::int64_t elements, std::mt19937_64& random);

// "" or the first element that differs. `close`: by more than the order of sums over a parameter changes it, 1e-6 of
// the element and of the tensor's largest.
std::string difference(const at::Tensor& found, const at::Tensor& wanted, bool close);

// Whether any round has sums over parameters of this shape.
bool has_sums(const Optimizer& optimizer, const std::vector<std::int64_t>& shape);

StepScalars scalars_of(double learning_rate, std::int64_t updates, double gradient_factor = 1.0, double apply = 1.0);

// The subject's settings; and, since what is 0 at its default (momentum) is off in them, every number that is, at 0.5,
// alone and with each boolean flipped.
std::vector<fakes::OptionTexts> settings_of(const Subject& subject);
// " (options: ...)", for the end of a sentence.
std::string with_options(const fakes::OptionTexts& options);
// Calls `check` with a fresh instance; nothing happens where the plugin refuses the options with UserError.
void with_optimizer(Subject& subject, const fakes::OptionTexts& options, const std::function<void(Optimizer&)>& check);

}  // namespace strata::conformance
