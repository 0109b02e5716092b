// An optimizer updates pieces: ranges of one parameter that this rank owns, with their optimizer state. Sharding and
// memory tiers are hidden from it.
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
  std::string parameter;            // canonical parameter name
  std::vector<std::int64_t> shape;  // shape of the whole parameter
  std::int64_t begin = 0;           // elements [begin, end), row-major, of the parameter or of this rank's part of it
  std::int64_t end = 0;
  // Properties that the model declares, see <strata/parameter.hpp>.
  bool linear_only = false;
  StackedMatrices stacked;
  // Maps elements of this tensor-parallel rank's part to elements of the whole parameter.
  PartPlaces places = {};

  // Returns a piece that is the whole parameter.
  static PieceInfo whole(const ParameterInfo& info) {
    return {info.name, info.shape, 0, info.elements(), info.linear_only, info.stacked, {}};
  }
};

// A state tensor of the optimizer, initially zero.
struct StateTensor {
  std::string name;  // name in checkpoints: "exp_avg"
  at::ScalarType dtype = at::kFloat;
  // Length of a state that belongs to the whole parameter, e.g. one element per row of a matrix: every piece has a
  // copy, and step() must leave all copies equal. 0: the state belongs to the elements of the piece.
  std::int64_t whole = 0;
  // Block size: the state has one element per `block` neighbouring elements of the piece (the last block may be
  // smaller), such as the scale of a block. Optimizer::unit() is a multiple of it.
  std::int64_t block = 1;

  std::int64_t elements(const PieceInfo& piece) const {
    return whole > 0 ? whole : (piece.end - piece.begin + block - 1) / block;
  }
};

struct Piece {
  PieceInfo info;
  at::Tensor master;                   // [end - begin], master weights: read and written
  at::Tensor gradient;                 // [end - begin], summed gradient, still multiplied by the loss scale
  at::Tensor parameter;                // [end - begin], parameter dtype: receives the rounded master weights, or see
                                       // Optimizer::trains_elsewhere; undefined if master is the parameter
  std::vector<at::Tensor> state;       // state tensors in the order of Optimizer::state
  at::Tensor sums;                     // fp64 [Optimizer::sums] of this round; undefined if it has none
  double learning_rate_factor = 1.0;   // factor of StepScalars::learning_rate
  std::optional<double> weight_decay;  // weight decay of this parameter; empty: the optimizer's option
};

// Scalars of one update. Tensors are 0-dimensional fp32 on the piece's device, so that the host need not
// synchronise.
struct StepScalars {
  double learning_rate = 0.0;
  std::int64_t updates = 0;             // number of updates before this one; Adam's t is updates + 1
  at::Tensor gradient_factor;           // factor that turns gradients into clipped gradients of the mean loss
  at::Tensor apply;                     // 1: update; 0: change nothing
  std::optional<double> momentum = {};  // momentum of this update, if the learning-rate schedule has one
  std::uint64_t seed = 0;               // seed of the run, for random numbers
};

// An update has one or more rounds. In each round the engine calls measure() for the part of each piece that this rank
// counts (Slice::counted_begin), sums the results over ranks by one all-reduce for all parameters, and calls step()
// with these sums over whole parameters. An element-wise optimizer has one round without sums. Adafactor's first round
// sums the squared gradient over rows and columns, its second the squares of the update computed from them.
//
// An optimizer with weight decay must have an option `weight_decay`; without that option Piece::weight_decay is always
// empty.
class STRATA_EXPORT Optimizer : public Plugin {
 public:
  ~Optimizer() override;
  // Returns the number of neighbouring elements of this parameter that are updated together: 1 unless overridden.
  // Pieces begin at a multiple of it, and end at one or at the parameter's end. At least 1; if it is the parameter's
  // number of elements or more, the parameter is never cut. An element's update may depend on elements outside its unit
  // only through sums; values that are not finite must not spread beyond their unit in another way either. Depends only
  // on the parameter, not on begin and end. In a tensor-parallel rank's part of a parameter, pieces count elements of
  // the part; the engine refuses a part that cuts a unit, unless the optimizer is a TensorUnits
  // (<strata/tensor_units.hpp>).
  virtual std::int64_t unit(const PieceInfo& piece) const;
  // True if step() uses StepScalars::momentum in place of the optimizer's own (SGD's momentum, Adam's first beta).
  // False unless overridden: the engine then refuses a run whose learning-rate schedule has a momentum.
  virtual bool takes_momentum() const;
  // True if layers train at other weights than the master weights. Evaluations, exports and checkpoints use the master
  // weights, which may be an average of the trained weights. False unless overridden. If true, Piece::parameter is
  // always defined, and step() writes there the weights that layers train at next.
  virtual bool trains_elsewhere() const;
  // Writes piece.parameter as the last step() did, bit for bit, from master and state alone. Called after an
  // evaluation, which computes with the rounded master weights, and after a resume; only if trains_elsewhere(). State
  // is zero before the first update. All tensors are on one device; gradient and sums are undefined. Runs on the
  // current stream; does not block. [any rank]
  virtual void write_trained(const Piece& piece) const;
  // Returns the state tensors of a piece. Depends only on the parameter, so it is equal for all its pieces.
  virtual std::vector<StateTensor> state(const PieceInfo& piece) const = 0;
  virtual int rounds() const;  // number of rounds; 1 unless overridden
  // Returns the number of sums over the whole parameter in `round`; 0 unless overridden. Depends only on the parameter.
  virtual std::int64_t sums(const PieceInfo& piece, int round) const;
  // Adds the contribution of `part`, which consists of whole units, to part.sums, which all parts of the parameter
  // share; changes nothing else. If scalars.apply is 0, the sums are not used. Runs on the current stream; does not
  // block. [any rank]
  virtual void measure(const Piece& part, int round, const StepScalars& scalars);
  // Runs one round for all of this rank's pieces of one flat parameter. The last round multiplies by gradient_factor,
  // updates and writes the rounded parameter. Runs on the current stream; does not block. [any rank], except with
  // <strata/tensor_units.hpp>.
  virtual void step(std::span<Piece* const> pieces, int round, const StepScalars& scalars) = 0;
};

}  // namespace strata
