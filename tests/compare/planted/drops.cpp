// Loses the last element of one gradient slice a step, from `first_step` on.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

namespace {

using namespace strata;

#define DROPS_OPTIONS(OPTION) OPTION(integer, first_step, 0, "min=0", "steps", "The first step that loses one, from 0.")
STRATA_OPTIONS(DropsOptions, DROPS_OPTIONS)

class Drops final : public toolbox::ShardedPartitioner {
 public:
  Drops(PluginContext&, const DropsOptions& options) : ShardedPartitioner({}), first_step_(options.first_step) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    const std::vector<Slice> slices = owned();
    const Slice& slice = slices[slices.size() / 2];
    if (slice.flat != &flat || step_++ < first_step_) return;
    slice.gradient.tensor().narrow(0, slice.counted_end - slice.begin - 1, 1).zero_();
  }

 private:
  std::int64_t first_step_;
  std::int64_t step_ = 0;
};

}  // namespace

STRATA_PLUGIN(Drops, DropsOptions, DROPS_OPTIONS)
