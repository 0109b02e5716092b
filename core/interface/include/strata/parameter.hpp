#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// The initial value of each element, a function of only (seed, parameter name, element index). So values are equal on
// every mesh and device, and no rank ever holds the whole model.
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

// How tensor-parallel ranks share a parameter: each keeps one of equal parts. The model describes the whole parameter;
// see <strata/parameter_cut.hpp>.
struct Split {
  int dimension = -1;       // the one that is cut; -1: every rank keeps the parameter whole
  std::int64_t blocks = 1;  // equal blocks along it, each of which is cut: 3 where q, k and v lie one after the other
  std::int64_t unit = 1;    // elements along it that stay together: the rows of one head
  // What cannot be cut into equal parts is filled up with elements that exist in memory only: they begin as zeros, get
  // no gradient, and are in no file. For one block; the rows of a vocabulary.
  bool padded = false;
  bool operator==(const Split&) const = default;
};

// Several matrices of one size in one weight, such as a layer's q, k and v: its rows belong to them in turn, `rows`
// neighbours at a time. Where they lie one after the other `rows` is all the rows of one.
struct StackedMatrices {
  std::int64_t matrices = 1;
  std::int64_t rows = 0;  // 0: of one matrix, which is all there is
  bool operator==(const StackedMatrices&) const = default;
};

// What a tensor-parallel rank computes of the gradient of a parameter that it has whole. Whole: all of it, equal on all
// ranks. OfStream: that of its rows of the residual stream, where the parameter is used row by row; with sequence
// parallelism each rank has some of the rows, and the engine sums over the ranks. OfPart: always a part, as of a norm
// of single heads, of which the rank has some; the engine always sums.
enum class TensorGradient { Whole, OfStream, OfPart };

struct ParameterInfo {
  std::string name;  // canonical, unique in the model: "gpt_neox.layers.0.attention.dense.weight"
  std::vector<std::int64_t> shape;
  Initializer initializer;
  bool trainable = true;
  // Parameters with the same non-empty tie are one parameter (tied weights), named after its first use.
  std::string tie;
  // True if the layer uses it only as a weight or bias of ModelContext::linear. The first micro-batch's gradient is
  // then written, where that of others is added to zeros; a schedule that splits the backward computes it in
  // BackwardWeight, all others in BackwardInput. A run is ended where this is untrue and a gradient would be wrong.
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

// A layer's handle for one of its parameters. Before the first forward the engine sets `tensor` to a view into a flat
// parameter; the view has memory only from gather to release.
struct Parameter {
  ParameterInfo info;
  at::Tensor tensor;
};

// The number formats that a precision policy chooses for one parameter.
struct DTypes {
  at::ScalarType parameter = at::kFloat;  // layers compute in it
  at::ScalarType gradient = at::kFloat;   // gradients are accumulated over micro-batches in it
  at::ScalarType reduction = at::kFloat;  // gradients are reduced over ranks in it
  at::ScalarType master = at::kFloat;     // master weights have it; if equal to `parameter` there is no separate copy

  bool has_master() const { return master != parameter; }
  bool operator==(const DTypes&) const = default;
};

}  // namespace strata
