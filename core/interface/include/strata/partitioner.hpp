// A partitioner decides which slices of parameters, gradients and optimizer state this rank keeps, and which collective
// on which group moves them. It knows nothing of schedules, tiers, models, or number formats other than as data.
#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/group.hpp>
#include <strata/mesh.hpp>
#include <strata/plugin.hpp>
#include <strata/state_store.hpp>
#include <strata/step.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

// Groups a strategy needs, as a partition of the data-parallel ranks 0..mesh.data-1: {"shard", {{0, 1}, {2, 3}}}. The
// engine makes one for each pipeline stage and tensor rank, eagerly and in the same order on all ranks.
struct GroupSpec {
  std::string name;
  std::vector<std::vector<int>> members;  // data-parallel ranks; disjoint, covering, in order
};

// A range of a flat parameter that this rank updates. Its tensors stay the same for the whole run.
struct Slice {
  FlatParameter* flat = nullptr;
  std::int64_t begin = 0;  // elements [begin, end) of the flat parameter
  std::int64_t end = 0;
  at::Tensor parameter;  // the range's storage in the parameter dtype: what the optimizer's result is written to
  at::Tensor
      gradient;  // the range's summed gradient; valid from finish_gradients() to the next step's first gradient()
  std::int64_t counted_begin =
      0;  // the part of the range that this rank counts in norms; over the data-parallel ranks every
  std::int64_t counted_end = 0;  // element is counted exactly once
};

class STRATA_EXPORT PartitionContext {
 public:
  virtual ~PartitionContext();
  // This rank's flat parameters, by id.
  virtual const std::vector<FlatParameter*>& flat_parameters() const = 0;
  // A group that groups() asked for.
  virtual Group& group(const std::string& name) = 0;
  virtual StateStore& store() = 0;
  virtual SlotPool& slots() = 0;
  virtual Device& device() = 0;
};

// The calls of one step, in the engine's order:
//   prefetch* gather forward release ... gather gradient backward reduce release ... finish_gradients, step, publish*
// Every rank of a stage gets the same calls in the same order, whatever its layers do.
class STRATA_EXPORT Partitioner : public Plugin {
 public:
  ~Partitioner() override;
  // [any rank] Pure: from the mesh alone.
  virtual std::vector<GroupSpec> groups(const MeshShape& mesh) const = 0;
  // Takes the flat parameters and allocates what this rank keeps. [collective] is allowed but not needed. `context` and
  // what it gave stay until shutdown() has returned: a collective or slot that is held is waited for and given back
  // there.
  virtual void attach(PartitionContext& context) = 0;
  virtual Lookahead lookahead() const = 0;
  // Starts bringing a flat parameter here; does not block. May be called for one that is already here. [collective]
  virtual void prefetch(FlatParameter& flat, Phase phase) = 0;
  // On return work on the compute stream sees the flat parameter bound to its whole, current values. [collective]
  virtual void gather(FlatParameter& flat, Phase phase) = 0;
  // Its values are not needed until the next gather. [collective]
  virtual void release(FlatParameter& flat, Phase phase) = 0;
  // Lends the buffer for this micro-batch's whole gradient: elements() long, gradient dtype. On the first contribution
  // it is zero, unless the strategy accumulates elsewhere, in which case it is zero each time. [any rank]
  virtual at::Tensor gradient(FlatParameter& flat, Accumulation accumulation) = 0;
  // Takes it back, filled: start summing over ranks now, or keep accumulating, as this strategy wants. The operation is
  // a SUM: the loss was already divided by the global token count. May wait for an earlier reduction, not for this one.
  // [collective]
  virtual void reduce(FlatParameter& flat, Accumulation accumulation) = 0;
  // On return every owned slice's gradient is complete on the compute stream. [collective]
  virtual void finish_gradients() = 0;
  // What this rank updates. Over the data-parallel ranks the slices cover every trainable element; frozen flat
  // parameters have slices too (they are filled and saved, not updated). Called once, after attach. [any rank]
  virtual std::vector<Slice> owned() = 0;
  // Owned slices of `flat` have new values: after the optimizer's step, and after values were filled or loaded.
  // [collective]
  virtual void publish(FlatParameter& flat) = 0;
};

}  // namespace strata
