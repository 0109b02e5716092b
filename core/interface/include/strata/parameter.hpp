#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// Initial value of each element, a function of only (seed, parameter name, element index), so values are equal on every
// mesh and device, and no rank ever holds the whole model.
struct Initializer {
  enum class Kind { Zeros, Ones, Constant, Normal, Uniform };
  Kind kind = Kind::Zeros;
  double mean = 0.0;       // mean of Normal; value of Constant; lower bound of Uniform
  double deviation = 0.0;  // standard deviation of Normal; upper bound of Uniform

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::Ones, 1.0, 0.0}; }
  static Initializer constant(double value) { return {Kind::Constant, value, 0.0}; }
  static Initializer normal(double mean, double deviation) { return {Kind::Normal, mean, deviation}; }
  static Initializer uniform(double low, double high) { return {Kind::Uniform, low, high}; }
};

// Cut of a parameter into equal parts, one for each tensor-parallel rank. The model describes the whole parameter; see
// <strata/parameter_cut.hpp>.
struct Split {
  int dimension = -1;       // dimension that is cut; -1: every rank keeps the whole parameter
  std::int64_t blocks = 1;  // equal blocks along the dimension, each cut separately: 3 for q, k and v in a row
  std::int64_t unit = 1;    // elements along the dimension that stay together: the rows of one head
  // True if the dimension is padded to equal parts, with elements that exist in memory only: they begin as zeros, get
  // no gradient, and are in no file. Requires one block; for the rows of a vocabulary.
  bool padded = false;
  bool operator==(const Split&) const = default;
};

// Several matrices of one size in one weight, such as a layer's q, k and v: the weight's rows belong to them in turn,
// `rows` neighbours at a time. `rows` is the height of one matrix if they are stored one after another.
struct StackedMatrices {
  std::int64_t matrices = 1;
  std::int64_t rows = 0;  // consecutive rows of one matrix; 0: all rows, and `matrices` is 1
  bool operator==(const StackedMatrices&) const = default;
};

// Share of the gradient that a tensor-parallel rank computes for a parameter that it holds whole. Whole: all of it,
// equal on all ranks. OfStream: the share of its rows of the residual stream, for a parameter used row by row; with
// sequence parallelism each rank has some of the rows, and the engine sums over the ranks. OfPart: always a share, e.g.
// for a norm of single heads, which are divided among the ranks; the engine always sums.
enum class TensorGradient { Whole, OfStream, OfPart };

struct ParameterInfo {
  std::string name;  // canonical name, unique in the model: "gpt_neox.layers.0.attention.dense.weight"
  std::vector<std::int64_t> shape;
  Initializer initializer;
  bool trainable = true;
  // Tie: parameters with the same non-empty tie are one parameter (tied weights), named after its first use.
  std::string tie;
  // True if the layer uses it only as a weight or bias of ModelContext::linear. The first micro-batch then writes the
  // gradient instead of adding to zeros; a split backward computes it in BackwardWeight, gradients of other parameters
  // in BackwardInput. If it is true but the layer uses the parameter in another way, the run ends with an error before
  // a wrong gradient is used.
  bool linear_only = false;
  Split split;
  StackedMatrices stacked;
  TensorGradient tensor_gradient = TensorGradient::Whole;

  bool sums_over_tensor(bool sequence_parallel) const {
    return tensor_gradient == TensorGradient::OfPart ||
           (tensor_gradient == TensorGradient::OfStream && sequence_parallel);
  }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
};

// Handle of a layer for one of its parameters. Before the first forward the engine sets `tensor` to a view into a flat
// parameter; the view has memory only from gather to release.
struct Parameter {
  ParameterInfo info;
  at::Tensor tensor;
};

// Number formats that a precision policy chooses for one parameter.
struct DTypes {
  at::ScalarType parameter = at::kFloat;  // dtype that layers compute in
  at::ScalarType gradient = at::kFloat;   // dtype of accumulation over micro-batches
  at::ScalarType reduction = at::kFloat;  // dtype of reduction over ranks
  at::ScalarType master = at::kFloat;     // dtype of master weights; no separate copy if equal to `parameter`

  bool has_master() const { return master != parameter; }
  bool operator==(const DTypes&) const = default;
};

}  // namespace strata
