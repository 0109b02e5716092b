#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// How an element gets its first value: a function of (seed, parameter name, element index) alone, so values are equal
// for every mesh and device and no rank ever holds the whole model.
struct Initializer {
  enum class Kind { Zeros, Ones, Constant, Normal, Uniform };
  Kind kind = Kind::Zeros;
  double mean = 0.0;       // Normal; the value of Constant; the lower bound of Uniform
  double deviation = 0.0;  // Normal; the upper bound of Uniform

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::Ones, 1.0, 0.0}; }
  static Initializer constant(double value) { return {Kind::Constant, value, 0.0}; }
  static Initializer normal(double mean, double deviation) { return {Kind::Normal, mean, deviation}; }
  static Initializer uniform(double low, double high) { return {Kind::Uniform, low, high}; }
};

struct ParameterInfo {
  std::string name;  // canonical, unique in the model: "gpt_neox.layers.0.attention.dense.weight"
  std::vector<std::int64_t> shape;
  Initializer initializer;
  bool trainable = true;
  std::string tie;  // parameters with the same non-empty tie are one parameter, named by its first use

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
};

// A layer's handle of one of its parameters. The engine points `tensor` at a view into a flat parameter before the
// first forward; the view's memory is there from gather to release only.
struct Parameter {
  ParameterInfo info;
  at::Tensor tensor;
};

// The number formats a precision policy gives to one parameter.
struct DTypes {
  at::ScalarType parameter = at::kFloat;  // what layers compute with
  at::ScalarType gradient = at::kFloat;   // what gradients are accumulated in over micro-batches
  at::ScalarType reduction = at::kFloat;  // what travels in the gradient reduction
  at::ScalarType master = at::kFloat;     // what the optimizer updates; equal to `parameter` means no separate copy

  bool has_master() const { return master != parameter; }
  bool operator==(const DTypes&) const = default;
};

}  // namespace strata
