// A partitioner decides which slices of parameters, gradients and optimizer state this rank keeps (the ZeRO stage), and
// which collectives move them. It does not know the schedule, memory tiers or the model; it takes the dtypes from each
// flat parameter.
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

// A set of groups that the strategy needs, as a partition of the data-parallel ranks 0..mesh.data-1: {"shard", {{0, 1},
// {2, 3}}}. The engine creates them for each pipeline stage and tensor rank at the start, in the same order on all
// ranks.
struct GroupSpec {
  std::string name;
  std::vector<std::vector<int>> members;  // data-parallel ranks: disjoint, complete, ascending
};

// A range of a flat parameter that this rank updates.
struct Slice {
  FlatParameter* flat = nullptr;
  std::int64_t begin = 0;  // elements [begin, end) of the flat parameter
  std::int64_t end = 0;
  // The range in the parameter dtype: the engine writes new values here.
  BufferRange parameter;
  // The range's gradient, summed over ranks: valid from finish_gradient() to the next step's first gradient().
  BufferRange gradient;
  // The part of the range that this rank counts in norms. Over the data-parallel ranks every element is counted once.
  // The engine moves a border within a unit to the unit's start.
  std::int64_t counted_begin = 0;
  std::int64_t counted_end = 0;
};

// A buffer for a part of a flat parameter's values or gradient, or for all of them.
struct BufferRequest {
  Category category = Category::Parameter;  // or Gradient
  const FlatParameter* flat = nullptr;
  std::int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
  bool resident = false;  // always here: its tensor is used between calls too, as parameters that stay gathered are
};

// What gradient() lends.
struct LentGradient {
  at::Tensor values;   // elements() long, gradient dtype
  bool empty = false;  // what the values are means nothing: the engine writes every one of them

  LentGradient(at::Tensor lent = {}, bool holds_nothing = false) : values(std::move(lent)), empty(holds_nothing) {}
};

class STRATA_EXPORT PartitionContext : public RunContext {
 public:
  ~PartitionContext() override;
  // This rank's flat parameters, indexed by id.
  virtual const std::vector<FlatParameter*>& flat_parameters() const = 0;
  // A group that groups() returned.
  virtual Group& group(const std::string& name) = 0;
  // Zeros. If it is not resident, its tensor is used only in these calls, and by work that they started:
  //   parameters  from prefetch(flat), or gather(flat), to the end of gather(flat); and in publish(flat)
  //   gradients   from gradient(flat) to the end of finish_gradient(flat)
  virtual Buffer& buffer(const BufferRequest& request) = 0;
  // Whether buffers of this category that are not resident rest elsewhere. A partitioner that would keep parameters
  // whole on one rank releases them all the same then.
  virtual bool moves(Category category) const = 0;
  // Whether gradients are summed over ranks that own the same slices. With `step_policy: local` they are not: each
  // group that holds all slices once trains by itself, and the engine averages the weights over Partitioner::replicas.
  virtual bool sums_replicas() const { return true; }
};

// The calls of one step, in order:
//   prefetch* gather forward release ... gather gradient backward reduce release ... finish_gradient*, step, publish*
// With `step_policy: delayed`, step (by the gradient of the step before) and publish* come before finish_gradient*.
// With `speculative`, forwards of the next step may follow publish*, and then step and publish* of this one once more.
// Where values are replaced once more after publish*, by such a second step or around an evaluation at other weights
// than those that are trained, gather() and release() of what stayed gathered come first.
// Where the schedule updates within the step, finish_gradient*, step and publish* follow the last reduce() of each
// update, and gather() what is then used again. All ranks of a stage get the same calls in the same order. What is out
// of this order throws Bug: release() of what is not gathered, a second gradient() before reduce(), reduce() without
// it.
class STRATA_EXPORT Partitioner : public Plugin {
 public:
  ~Partitioner() override;
  // [any rank] Pure: depends only on the mesh.
  virtual std::vector<GroupSpec> groups(const MeshShape& mesh) const = 0;
  // Takes the flat parameters and allocates what this rank keeps. May call collectives. `context` and what it returned
  // stay valid until shutdown() has returned; shutdown() must wait for pending collectives and release slots.
  virtual void attach(PartitionContext& context) = 0;
  virtual Lookahead lookahead() const = 0;
  // Starts gathering a flat parameter; does not block. May be called for one that is already gathered. [collective]
  virtual void prefetch(FlatParameter& flat, Phase phase) = 0;
  // On return, work on the compute stream sees the flat parameter bound to its full, current values. They stay until
  // release(), whatever else is gathered. May be called for one that is already gathered. [collective]
  virtual void gather(FlatParameter& flat, Phase phase) = 0;
  // The full values are not needed until the next gather. [collective]
  virtual void release(FlatParameter& flat, Phase phase) = 0;
  // The buffer that this micro-batch's full gradient is added to. It holds the sum so far or, at an update's first
  // micro-batch and wherever the strategy accumulates elsewhere, zeros. One that is lent as empty need not be cleared:
  // the first product of a weight's gradient is written over what is there, and the engine clears the rest. [any rank]
  virtual LentGradient gradient(FlatParameter& flat, Accumulation accumulation) = 0;
  // Takes the filled buffer back and either starts the reduction over ranks or keeps accumulating. The reduction is a
  // SUM, because the loss was already divided by the global token count. May wait for an earlier reduction, not for
  // this one. [collective]
  virtual void reduce(FlatParameter& flat, Accumulation accumulation) = 0;
  // On return, the owned slices of `flat` hold the sum of all that was reduced of it, on the compute stream. Called
  // after the step's last reduce() of it; after earlier ones too where its gradient leaves the device between two
  // micro-batches. [collective]
  virtual void finish_gradient(FlatParameter& flat) = 0;
  // The slices that this rank updates, of which no two have an element in common. Over all data-parallel ranks they
  // cover every element. They begin and end only where the optimizer allows a cut (FlatParameterInfo::cut_up_to);
  // others are refused. Slices of frozen flat parameters are initialised and saved but not updated. The ranges of a
  // tied flat parameter may depend only on its number of elements, dtypes and unit: pipeline stages that share it must
  // cut it alike, to sum its gradient slice by slice.
  // Called once, after attach. [any rank]
  virtual std::vector<Slice> owned() = 0;
  // The owned slices of `flat` have new values, after the optimizer's step or after values were initialised or loaded.
  // Where it is bound, the next gather() has them on every rank; before the first step the engine compares them.
  // [collective]
  virtual void publish(FlatParameter& flat) = 0;
  // Of the groups that groups() named, the one of the ranks that own the same slices as this rank, in an order by which
  // the ranks of one number hold all slices together and reduce, gather and publish without the others; null if there
  // is none. Asked after attach. `step_policy: local` needs it. [any rank]
  virtual Group* replicas() { return nullptr; }
};

}  // namespace strata
