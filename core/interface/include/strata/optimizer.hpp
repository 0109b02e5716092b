// An optimizer updates pieces: ranges of one parameter that this rank owns, with their optimizer state. It does not
// know how parameters were sharded or on which memory tier a piece is.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata {

// The smallest unit that a cut may not split: an element, a row of a matrix, or a whole parameter.
enum class Granularity { Element, Row, Matrix };

struct PieceInfo {
  std::string parameter;            // canonical name
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t begin = 0;           // elements [begin, end) of the parameter, row-major
  std::int64_t end = 0;
};

// A state tensor of the optimizer: one element per element of the piece, initially zero.
struct StateTensor {
  std::string name;  // "exp_avg": its name in checkpoints
  at::ScalarType dtype = at::kFloat;
};

struct Piece {
  PieceInfo info;
  at::Tensor master;     // [end - begin], master weights: read and written
  at::Tensor gradient;   // [end - begin], summed gradient, still multiplied by the loss scale
  at::Tensor parameter;  // [end - begin], parameter dtype: write the rounded master weights here; undefined if master
                         // is the parameter
  std::vector<at::Tensor> state;       // in the order of Optimizer::state
  double learning_rate_factor = 1.0;   // multiplies StepScalars::learning_rate
  std::optional<double> weight_decay;  // for this parameter only; empty: use the optimizer's option
};

// The scalars of one step. Tensors are 0-dimensional fp32 on the piece's device, so that the host need not synchronise.
struct StepScalars {
  double learning_rate = 0.0;
  std::int64_t updates = 0;             // updates made before this one; Adam's t is updates + 1
  at::Tensor gradient_factor;           // multiply gradients by this: 1 / loss scale x clip factor
  at::Tensor apply;                     // 1: update; 0: change nothing
  std::optional<double> momentum = {};  // of this update, if the learning-rate schedule gives one
};

// An optimizer with weight decay must have an option `weight_decay`; without that option Piece::weight_decay is always
// empty.
class STRATA_EXPORT Optimizer : public Plugin {
 public:
  ~Optimizer() override;
  virtual Granularity granularity() const;  // Element unless overridden
  // Whether step() takes StepScalars::momentum in place of its own (SGD's momentum, Adam's first beta). False unless
  // overridden; a run whose schedule gives a momentum is then refused.
  virtual bool takes_momentum() const;
  virtual std::vector<StateTensor> state(const PieceInfo& piece) const = 0;
  // One pass over the piece: unscale, clip, update, write the rounded parameter. Runs on the current stream; does not
  // block. [any rank]
  virtual void step(Piece& piece, const StepScalars& scalars) = 0;
};

}  // namespace strata
