// A partitioner decides which slices of parameters, gradients and optimizer state this rank keeps (the ZeRO stage), and
// which collectives move them. Schedule, memory tiers and model are hidden from it; dtypes come from each flat
// parameter.
#pragma once
#include <strata/buffer.hpp>
#include <strata/flat_parameter.hpp>
#include <strata/group.hpp>
#include <strata/mesh.hpp>
#include <strata/plugin.hpp>
#include <strata/run_context.hpp>
#include <strata/step.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata {

// Set of groups that the strategy needs, as a partition of the data-parallel ranks 0 .. mesh.data_parallel() - 1 (see
// data_parallel_ranks): {"shard", {{0, 1}, {2, 3}}}. The engine creates the groups for each pipeline stage and tensor
// rank at the start, in the same order on all ranks.
struct GroupSpec {
  std::string name;
  std::vector<std::vector<int>> members;  // data-parallel ranks: disjoint, complete, ascending
};

// Range of a flat parameter that this rank updates.
struct Slice {
  FlatParameter* flat = nullptr;
  std::int64_t begin = 0;  // elements [begin, end) of the flat parameter
  std::int64_t end = 0;
  // Values of the range in the parameter dtype; the engine writes new values here.
  BufferRange parameter;
  // Gradient of the range, summed over ranks: valid from finish_gradient() to the next step's first gradient().
  BufferRange gradient;
  // Subrange that this rank counts in norms: over the data-parallel ranks every element is counted once. The engine
  // moves a border that lies within a unit to the unit's start.
  std::int64_t counted_begin = 0;
  std::int64_t counted_end = 0;
};

// Request for a buffer that holds a flat parameter's values or gradient, or a part of them.
struct BufferRequest {
  Category category = Category::Parameter;  // Parameter or Gradient
  const FlatParameter* flat = nullptr;
  std::int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
  bool resident = false;  // always on the device: its tensor may be used between calls (parameters that stay gathered)
};

// Buffer lent by Partitioner::gradient.
struct LentGradient {
  at::Tensor values;   // elements() long, gradient dtype
  bool empty = false;  // contents are unspecified; the engine overwrites all of them

  LentGradient(at::Tensor lent = {}, bool holds_nothing = false) : values(std::move(lent)), empty(holds_nothing) {}
};

class STRATA_EXPORT PartitionContext : public RunContext {
 public:
  ~PartitionContext() override;
  // Returns this rank's flat parameters, indexed by id.
  virtual const std::vector<FlatParameter*>& flat_parameters() const = 0;
  // Returns a group that Partitioner::groups declared.
  virtual Group& group(const std::string& name) = 0;
  // Allocates a buffer of zeros. If not resident, use its tensor only in these calls and in work that they start:
  //   parameters  from prefetch(flat), or gather(flat), to the end of gather(flat); and in publish(flat)
  //   gradients   from gradient(flat) to the end of finish_gradient(flat)
  virtual Buffer& buffer(const BufferRequest& request) = 0;
  // True if buffers of this category that are not resident have their home on another tier. A partitioner that would
  // keep parameters whole on one rank then releases them anyway.
  virtual bool moves(Category category) const = 0;
  // True if gradients are summed over ranks that own the same slices. False with `step_policy: local`: each group that
  // holds all slices once trains independently, and the engine averages the weights over Partitioner::replicas.
  virtual bool sums_replicas() const { return true; }
};

// The calls of one step, in order:
//   prefetch* gather forward release ... gather gradient backward reduce release ... finish_gradient*, step, publish*
// With `step_policy: delayed`, step (by the previous step's gradient) and publish* come before finish_gradient*.
// With `speculative`, forwards of the next step may follow publish*, and then a second step and publish* of this
// step. Before values are replaced after publish*, by such a second step or for an evaluation at other weights
// than the trained ones, the engine calls gather() and release() for flat parameters that stayed gathered. If the
// schedule updates within the step, finish_gradient*, step and publish* follow the last reduce() of each update,
// then gather() of values used again. All ranks of a stage get the same calls in the same order. Calls out of
// this order throw Bug: release() without gather(), a second gradient() before reduce(), reduce() without
// gradient().
class STRATA_EXPORT Partitioner : public Plugin {
 public:
  ~Partitioner() override;
  // Returns the groups that the strategy needs. Pure: depends only on the mesh. [any rank]
  virtual std::vector<GroupSpec> groups(const MeshShape& mesh) const = 0;
  // Takes the flat parameters and allocates buffers. May call collectives. `context` and the objects it returned stay
  // valid until shutdown() has returned; shutdown() must wait for pending collectives and release slots.
  virtual void attach(PartitionContext& context) = 0;
  virtual Lookahead lookahead() const = 0;
  // Starts gathering a flat parameter; does not block. May be called for one that is already gathered. [collective]
  virtual void prefetch(FlatParameter& flat, Phase phase) = 0;
  // Binds the flat parameter to its full, current values, for work on the compute stream after the return. They stay
  // until release(), independently of other gathers. May be called for one that is already gathered. [collective]
  virtual void gather(FlatParameter& flat, Phase phase) = 0;
  // Gives up the full values until the next gather. [collective]
  virtual void release(FlatParameter& flat, Phase phase) = 0;
  // Lends the buffer that this micro-batch's full gradient is added to. It holds the sum so far or, at an update's
  // first micro-batch and if the strategy accumulates elsewhere, zeros. A buffer lent as empty need not be cleared: the
  // first product of a weight's gradient overwrites its contents, and the engine clears the rest. [any rank]
  virtual LentGradient gradient(FlatParameter& flat, Accumulation accumulation) = 0;
  // Takes the filled buffer back and either starts the reduction over ranks or keeps accumulating. The reduction is a
  // SUM, because the loss was already divided by the global token count. May wait for an earlier reduction, not for
  // this one. [collective]
  virtual void reduce(FlatParameter& flat, Accumulation accumulation) = 0;
  // Completes the gradient: on return, the owned slices of `flat` hold the sum of all its reductions, on the compute
  // stream. Called after the step's last reduce() of it; also after earlier ones if its gradient leaves the device
  // between two micro-batches. [collective]
  virtual void finish_gradient(FlatParameter& flat) = 0;
  // Returns the slices that this rank updates; they are disjoint. Over all data-parallel ranks they cover
  // every element. They begin and end only at places where the optimizer allows a cut
  // (FlatParameterInfo::cut_up_to); others are refused. Slices of frozen flat parameters are initialised and
  // saved but not updated. The ranges of a tied flat parameter may depend only on its number of elements,
  // dtypes and unit: pipeline stages that share it must cut it alike, to sum its gradient slice by slice.
  // Called once, after attach. [any rank]
  virtual std::vector<Slice> owned() = 0;
  // Publishes new values of the owned slices of `flat`, after the optimizer's step or after initialisation or
  // loading. The next gather() binds them on every rank; before the first step the engine compares the values of
  // all ranks. [collective]
  virtual void publish(FlatParameter& flat) = 0;
  // Returns the group, declared by groups(), of the ranks that own the same slices as this rank; null if there is none.
  // The ranks with the same index in their replica groups must together hold all slices, and must reduce, gather and
  // publish without other ranks. Called after attach, for `step_policy: local`. [any rank]
  virtual Group* replicas() { return nullptr; }
};

}  // namespace strata
