// ZeRO's stage 3 that mistakes what only some flat parameters have: layers of a later pipeline stage, a gradient that
// is computed in BackwardWeight, a tensor-parallel rank's part.
#include <ATen/TensorOperators.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <set>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

STRATA_NO_OPTIONS(NoOptions)

class CombinedPartitioner final : public toolbox::ShardedPartitioner {
 public:
  CombinedPartitioner(PluginContext& /*context*/, const NoOptions& /*options*/) : ShardedPartitioner({}) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void attach(PartitionContext& context) override {
    ShardedPartitioner::attach(context);
    group_ = &context.group("shard");
    for (const FlatParameter* flat : context.flat_parameters())
      layers_.insert(flat->info().layers.begin(), flat->info().layers.end());
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    if (!has("mean_of_deferred") || !flat.info().deferred) return;
    for (const Slice& slice : owned())
      if (slice.flat == &flat && slice.begin < slice.end) slice.gradient.tensor().div_(group_->size());
  }
  void publish(FlatParameter& flat) override {
    const bool of_step = !published_.insert(&flat).second;  // the first one publishes initial values
    const FlatParameterInfo& info = flat.info();
    // Layers are numbered in the whole model, not from this stage's first.
    const bool is_elsewhere = info.layers.front() >= static_cast<int>(layers_.size());
    std::int64_t described = 0;  // of whole parameters, not of this rank's parts
    for (const ParameterSpan& span : info.parameters) described += span.info.elements();
    if (of_step && has("layers_from_zero") && is_elsewhere) return;
    if (of_step && has("described_elements") && described != info.elements) return;
    ShardedPartitioner::publish(flat);
  }

 private:
  Group* group_ = nullptr;
  std::set<int> layers_;
  std::set<const FlatParameter*> published_;
};

}  // namespace

STRATA_PLUGIN(CombinedPartitioner, NoOptions)
