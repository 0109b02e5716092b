// Inputs of an optimizer in the cases: all tensors of a parameter; pieces are ranges of them.
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
  std::optional<at::ScalarType> copy;  // format of the parameter; empty: the master is the parameter
};

struct ParameterTensors {
  std::string name;
  std::vector<std::int64_t> shape;
  at::Tensor master;
  at::Tensor gradient;
  at::Tensor copy;  // undefined if the master is the parameter
  std::vector<at::Tensor> state;
  std::vector<StateTensor> states;  // descriptions of `state`

  std::int64_t elements() const { return master.numel(); }
  // Returns a piece, which begins at a multiple of the optimizer's unit.
  Piece piece(std::int64_t begin, std::int64_t end) const;
  Piece whole() const { return piece(0, elements()); }
  ParameterTensors clone() const;
  // Returns every tensor except the gradient, with its name.
  std::vector<std::pair<std::string, at::Tensor>> written() const;
};

// Makes a whole parameter; matrices are weights of products.
PieceInfo info_of(const std::string& name, const std::vector<std::int64_t>& shape);

// Makes random values of about 1, with state zero.
ParameterTensors make_parameter(const Optimizer& optimizer, const std::string& name, std::vector<std::int64_t> shape,
                                const Formats& formats, std::mt19937_64& random);
// Sets the next step's gradient: magnitudes 1e-3 to 10, none zero.
at::Tensor draw_gradient(std::int64_t elements, std::mt19937_64& random);

// Returns the first element that differs, or "". `close`: differs by more than another order of sums over a parameter
// may change it, 1e-6 of the element and of the tensor's largest.
std::string difference(const at::Tensor& found, const at::Tensor& wanted, bool close);

// True if any round has sums over parameters of this shape.
bool has_sums(const Optimizer& optimizer, const std::vector<std::int64_t>& shape);

StepScalars scalars_of(double learning_rate, std::int64_t updates, double gradient_factor = 1.0, double apply = 1.0);

// Returns the subject's settings and, because options that are 0 by default (momentum) are off in them, every such
// number at 0.5, alone and with each boolean flipped.
std::vector<fakes::OptionTexts> settings_of(const Subject& subject);
// Returns " (options: ...)", for the end of a sentence.
std::string with_options(const fakes::OptionTexts& options);
// Calls `check` with a new instance; does nothing if the plugin refuses the options with UserError.
void with_optimizer(Subject& subject, const fakes::OptionTexts& options, const std::function<void(Optimizer&)>& check);

}  // namespace strata::conformance
