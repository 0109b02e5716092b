// Plain data parallelism: every rank keeps all parameters, gradients and optimizer state, and gradients are summed over
// ranks once per step. A partitioner defines attach (what this rank keeps), gradient and reduce (what happens to a
// micro-batch's gradient) and owned (what this rank updates); <strata/partitioner.hpp> is the contract. For a sharding
// strategy, start from toolbox::ShardedPartitioner instead.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/partitioner.hpp>
#include <strata/toolbox/data_parallel_group.hpp>

#include <utility>
#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class DataParallel final : public Partitioner {
 public:
  DataParallel(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("data", mesh);  // one group of all data-parallel ranks
  }

  // Memory that outlives a call must come from the context, because `strata plan` counts it there.
  void attach(PartitionContext& context) override {
    group_ = &context.group("data");
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Replica& replica = replicas_.emplace_back();
      replica.flat = flat;
      replica.parameter = &context.buffer({.category = Category::Parameter,
                                           .flat = flat,
                                           .elements = info.elements,
                                           .dtype = info.dtypes.parameter,
                                           .resident = true});
      flat->bind(replica.parameter->tensor());
      if (!info.trainable) continue;
      replica.gradient = &context.buffer(
          {.category = Category::Gradient, .flat = flat, .elements = info.elements, .dtype = info.dtypes.gradient});
      if (info.dtypes.reduction != info.dtypes.gradient)  // a copy in that dtype is reduced
        replica.copy =
            context.store().allocate(Category::Bucket, Tier::Device, info.name, info.elements, info.dtypes.reduction);
    }
  }

  // Parameters are always resident, so there is nothing to gather.
  Lookahead lookahead() const override { return {.resident = true}; }
  void prefetch(FlatParameter&, Phase) override {}
  void gather(FlatParameter&, Phase) override {}
  void release(FlatParameter&, Phase) override {}

  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    strata_check(!std::exchange(replica.lent, true), "a gradient is lent that is lent already");
    return {replica.gradient->tensor(), accumulation.first};
  }

  // The reduction runs while other layers compute; finish_gradient waits for it.
  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    strata_check(std::exchange(replica.lent, false), "a gradient comes back that was not lent");
    if (!accumulation.last) return;
    const at::Tensor& gradient = replica.gradient->tensor();
    if (replica.copy.defined()) replica.copy.copy_(gradient);
    replica.pending = group_->all_reduce(replica.copy.defined() ? replica.copy : gradient, ReduceOperation::Sum);
  }

  void finish_gradient(FlatParameter& flat) override {
    Replica& replica = replica_of(flat);
    if (!replica.pending.waiting()) return;
    replica.pending.wait();
    if (replica.copy.defined()) replica.gradient->tensor().copy_(replica.copy);
  }

  // Every rank updates everything and counts its own part in norms.
  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    const std::int64_t rank = group_->rank(), ranks = group_->size();
    for (const Replica& replica : replicas_) {
      const std::int64_t elements = replica.flat->elements();
      slices.push_back({replica.flat,
                        0,
                        elements,
                        {replica.parameter, 0, elements},
                        {replica.gradient, 0, elements},
                        elements * rank / ranks,
                        elements * (rank + 1) / ranks});
    }
    return slices;
  }

  void publish(FlatParameter&) override {}  // all ranks made the same update

  // A run may end inside a step: no reduction may be pending when its memory is freed.
  void shutdown() override {
    for (Replica& replica : replicas_) replica.pending.wait();
  }

 private:
  struct Replica {
    FlatParameter* flat = nullptr;
    Buffer* parameter = nullptr;
    Buffer* gradient = nullptr;  // null if frozen
    at::Tensor copy;             // the gradient in the reduction's dtype, if it differs
    Pending pending;
    bool lent = false;  // true from gradient() to reduce()
  };
  Replica& replica_of(const FlatParameter& flat) { return replicas_[static_cast<std::size_t>(flat.info().id)]; }

  Group* group_ = nullptr;
  std::vector<Replica> replicas_;  // indexed by flat parameter id
};

}  // namespace

STRATA_PLUGIN(DataParallel, NoOptions)
