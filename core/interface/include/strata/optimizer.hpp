// An optimizer updates pieces: ranges of one parameter that this rank owns, with their optimizer state. It does not
// know how parameters were sharded or on which memory tier a piece is.
#pragma once
#include <ATen/core/Tensor.h>
#include <strata/parameter_cut.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace strata {

struct PieceInfo {
  std::string parameter;            // canonical name
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t begin = 0;           // elements [begin, end), row-major: of the parameter, or of this rank's part of it
  std::int64_t end = 0;
  // As the model says, see <strata/parameter.hpp>.
  bool linear_only = false;
  StackedMatrices stacked;
  // Where a tensor-parallel rank has a part of a parameter: where its elements lie in the whole.
  PartPlaces places = {};

  // All of a parameter.
  static PieceInfo whole(const ParameterInfo& info) {
    return {info.name, info.shape, 0, info.elements(), info.linear_only, info.stacked, {}};
  }
};

// A state tensor of the optimizer, initially zero.
struct StateTensor {
  std::string name;  // "exp_avg": its name in checkpoints
  at::ScalarType dtype = at::kFloat;
  // 0: the state belongs to the elements of the piece. Otherwise it belongs to the whole parameter and has this many
  // elements, such as one per row of a matrix: every piece has a copy, and step() must leave all copies equal.
  std::int64_t whole = 0;
  // The state has one element per so many neighbouring elements of the piece, the last of which may be fewer: such as
  // the scale of a block. Optimizer::unit() is a multiple of it.
  std::int64_t block = 1;

  std::int64_t elements(const PieceInfo& piece) const {
    return whole > 0 ? whole : (piece.end - piece.begin + block - 1) / block;
  }
};

struct Piece {
  PieceInfo info;
  at::Tensor master;                   // [end - begin], master weights: read and written
  at::Tensor gradient;                 // [end - begin], summed gradient, still multiplied by the loss scale
  at::Tensor parameter;                // [end - begin], parameter dtype: write the rounded master weights here, or see
                                       // Optimizer::trains_elsewhere; undefined if master is the parameter
  std::vector<at::Tensor> state;       // in the order of Optimizer::state
  at::Tensor sums;                     // fp64 [Optimizer::sums] of this round; undefined if it has none
  double learning_rate_factor = 1.0;   // multiplies StepScalars::learning_rate
  std::optional<double> weight_decay;  // for this parameter only; empty: use the optimizer's option
};

// The scalars of one update. Tensors are 0-dimensional fp32 on the piece's device, so that the host need not
// synchronise.
struct StepScalars {
  double learning_rate = 0.0;
  std::int64_t updates = 0;             // updates made before this one; Adam's t is updates + 1
  at::Tensor gradient_factor;           // multiply gradients by this: it makes them those of the mean loss, clipped
  at::Tensor apply;                     // 1: update; 0: change nothing
  std::optional<double> momentum = {};  // of this update, if the learning-rate schedule gives one
  std::uint64_t seed = 0;               // the run's, for random numbers
};

// An update has one or more rounds. In each round the engine calls measure() for the part of each piece that this rank
// counts, sums the results over ranks by one all-reduce for all parameters, and calls step() with these sums over
// whole parameters. An element-wise optimizer has one round without sums. Adafactor's first round sums the squared
// gradient over rows and columns, its second the squares of the update computed from them.
//
// An optimizer with weight decay must have an option `weight_decay`; without that option Piece::weight_decay is always
// empty.
class STRATA_EXPORT Optimizer : public Plugin {
 public:
  ~Optimizer() override;
  // How many neighbouring elements of this parameter are updated together: 1 unless overridden. A piece begins at a
  // multiple of it, and ends at one or at the parameter's end. At least 1; the parameter's elements or more: it is
  // never cut. An element's update depends on elements outside of its unit only through sums, also where they are not
  // finite. Depends only on the parameter, not on begin and end. Where a tensor-parallel rank has a part of a
  // parameter, pieces count elements in that part; a part that cuts a unit of the parameter is refused, unless the
  // optimizer is a TensorUnits (<strata/tensor_units.hpp>).
  virtual std::int64_t unit(const PieceInfo& piece) const;
  // Whether step() takes StepScalars::momentum in place of its own (SGD's momentum, Adam's first beta). False unless
  // overridden; a run whose schedule gives a momentum is then refused.
  virtual bool takes_momentum() const;
  // Whether layers train at other weights than the master weights. Evaluations, exports and checkpoints take the master
  // weights, which may be an average of weights that were trained at. False unless overridden. If true,
  // Piece::parameter is always defined, and step() writes there what layers train at next.
  virtual bool trains_elsewhere() const;
  // Writes piece.parameter as the last step() did, bit for bit, from master and state alone: after an evaluation, which
  // computes with the rounded master weights, and after a resume. State is zero before the first update. All tensors
  // are on one device; gradient and sums are undefined. Runs on the current stream; does not block. [any rank]
  virtual void write_trained(const Piece& piece) const;
  // What a piece needs, alike for all pieces of a parameter: depends only on the parameter.
  virtual std::vector<StateTensor> state(const PieceInfo& piece) const = 0;
  virtual int rounds() const;  // 1 unless overridden
  // How many sums over the whole parameter `round` needs; 0 unless overridden. Depends only on the parameter.
  virtual std::int64_t sums(const PieceInfo& piece, int round) const;
  // Adds this part's contribution, of whole units, to part.sums, which other parts of the same parameter share; changes
  // nothing else. If scalars.apply is 0, the sums are not used. Runs on the current stream; does not block. [any rank]
  virtual void measure(const Piece& part, int round, const StepScalars& scalars);
  // One round for all of this rank's pieces of one flat parameter. The last round multiplies by gradient_factor,
  // updates and writes the rounded parameter. Runs on the current stream; does not block. [any rank], but for
  // <strata/tensor_units.hpp>.
  virtual void step(std::span<Piece* const> pieces, int round, const StepScalars& scalars) = 0;
};

}  // namespace strata
