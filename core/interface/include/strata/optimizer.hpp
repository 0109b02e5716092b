// An optimizer updates pieces: ranges of one parameter that this rank owns, with their state. Where pieces came from,
// and on which tier they live, is not its business.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata {

// What a piece must contain whole: single elements, rows of a matrix, or whole parameters. An input of the slicing.
enum class Granularity { Element, Row, Matrix };

struct PieceInfo {
  std::string parameter;            // canonical name
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t begin = 0;           // elements [begin, end) of it, row-major
  std::int64_t end = 0;
};

// A state tensor an optimizer keeps, one element per element of the piece, zero at first.
struct StateTensor {
  std::string name;  // "exp_avg": its name in checkpoints
  at::ScalarType dtype = at::kFloat;
};

struct Piece {
  PieceInfo info;
  at::Tensor master;    // [end - begin], master dtype: read and written
  at::Tensor gradient;  // [end - begin], summed gradient, still scaled
  at::Tensor
      parameter;  // [end - begin], parameter dtype: the rounded copy to write; undefined when master is the parameter
  std::vector<at::Tensor> state;       // in the order of Optimizer::state
  double learning_rate_factor = 1.0;   // multiplies StepScalars::learning_rate
  std::optional<double> weight_decay;  // this parameter's own; empty: the one in the optimizer's options
};

// One step's scalars. Tensors are 0-dimensional fp32 where the piece's tensors lie, so that no host synchronisation is
// needed.
struct StepScalars {
  double learning_rate = 0.0;
  std::int64_t updates = 0;             // updates made before this one: Adam's t is updates + 1
  at::Tensor gradient_factor;           // multiply gradients by this: 1 / loss scale x clip factor
  at::Tensor apply;                     // 1: update; 0: leave everything as it is
  std::optional<double> momentum = {};  // of this update, where the learning rate's schedule gives one
};

// An optimizer that decays weights has an option `weight_decay`; one that has not never gets pieces with a decay of
// their own.
class STRATA_EXPORT Optimizer : public Plugin {
 public:
  ~Optimizer() override;
  virtual Granularity granularity() const;  // Element unless overridden
  // Whether step() takes StepScalars::momentum in place of its own (SGD's momentum, Adam's first beta). False unless
  // overridden; a run whose schedule gives a momentum is then refused.
  virtual bool takes_momentum() const;
  virtual std::vector<StateTensor> state(const PieceInfo& piece) const = 0;
  // One pass over the piece: unscale, clip, update, write the rounded copy. On the current stream; does not block. [any
  // rank]
  virtual void step(Piece& piece, const StepScalars& scalars) = 0;
};

}  // namespace strata
