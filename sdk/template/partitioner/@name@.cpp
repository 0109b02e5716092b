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

  // Memory that outlives a call must come from the store, because `strata plan` counts it there.
  void attach(PartitionContext& context) override {
    group_ = &context.group("data");
    const auto allocate = [&](Category category, const FlatParameterInfo& info, at::ScalarType dtype) {
      return context.store().allocate(category, Tier::Device, info.name, info.elements, dtype);
    };
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      Replica& replica = replicas_.emplace_back();
      replica.flat = flat;
      replica.parameter = allocate(Category::Parameter, info, info.dtypes.parameter);
      flat->bind(replica.parameter);
      if (!info.trainable) continue;
      replica.gradient = allocate(Category::Gradient, info, info.dtypes.gradient);
      const bool same = info.dtypes.reduction == info.dtypes.gradient;  // if false, a copy in that dtype is reduced
      replica.sum = same ? replica.gradient : allocate(Category::Bucket, info, info.dtypes.reduction);
    }
  }

  // Parameters are always resident, so there is nothing to gather.
  Lookahead lookahead() const override { return {.resident = true}; }
  void prefetch(FlatParameter&, Phase) override {}
  void gather(FlatParameter&, Phase) override {}
  void release(FlatParameter&, Phase) override {}

  at::Tensor gradient(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    strata_check(!std::exchange(replica.lent, true), "a gradient is lent that is lent already");
    if (accumulation.first) replica.gradient.zero_();
    return replica.gradient;
  }

  // The reduction runs while other layers compute; finish_gradients waits for it.
  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    Replica& replica = replica_of(flat);
    strata_check(std::exchange(replica.lent, false), "a gradient comes back that was not lent");
    if (!accumulation.last) return;
    replica.sum.copy_(replica.gradient);  // does nothing if both are the same tensor
    replica.pending = group_->all_reduce(replica.sum, ReduceOperation::Sum);
  }

  void finish_gradients() override {
    for (Replica& replica : replicas_) {
      if (!replica.pending.waiting()) continue;
      replica.pending.wait();
      replica.gradient.copy_(replica.sum);
    }
  }

  // Every rank updates everything and counts its own part in norms.
  std::vector<Slice> owned() override {
    std::vector<Slice> slices;
    const std::int64_t rank = group_->rank(), ranks = group_->size();
    for (const Replica& replica : replicas_) {
      const std::int64_t elements = replica.flat->elements();
      slices.push_back({replica.flat, 0, elements, replica.parameter, replica.gradient, elements * rank / ranks,
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
    at::Tensor parameter;
    at::Tensor gradient;
    at::Tensor sum;
    Pending pending;
    bool lent = false;  // true from gradient() to reduce()
  };
  Replica& replica_of(const FlatParameter& flat) { return replicas_[static_cast<std::size_t>(flat.info().id)]; }

  Group* group_ = nullptr;
  std::vector<Replica> replicas_;  // indexed by flat parameter id
};

}  // namespace

STRATA_PLUGIN(DataParallel, NoOptions)
