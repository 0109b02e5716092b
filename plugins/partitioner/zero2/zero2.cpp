// ZeRO stage 2 (Rajbhandari et al., arXiv:1910.02054): each data-parallel rank keeps 1/N of every layer's gradient and
// optimizer state. A layer's gradient is whole from its backward until it is summed, each rank adding its part to what
// it has accumulated; the updated parts of the parameters are gathered while the next step begins.
//
// Sent in a step of A micro-batches over what ddp sends, P and R as in <strata/toolbox/sharded_partitioner.hpp>:
//
// - (A R + P) / 2R, which is (A + 1) / 2 where parameters and the reduction have one dtype;
// - (2A R + P) / 2R without reduce_scatter;
// - with gradient_reduction: last_micro_batch what zero1 sends, and whole gradients are kept as there.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define ZERO2_OPTIONS(OPTION)          \
  STRATA_REDUCE_OPTIONS(OPTION)        \
  STRATA_REDUCE_SCATTER_OPTION(OPTION) \
  STRATA_REDUCTION_TIME_OPTION(OPTION) \
  STRATA_ALLGATHER_OPTION(OPTION)
STRATA_OPTIONS(Zero2Options, ZERO2_OPTIONS)

class Zero2 final : public toolbox::ShardedPartitioner {
 public:
  Zero2(PluginContext& context, const Zero2Options& options) : ShardedPartitioner(settings(context, options)) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }

 private:
  static toolbox::ShardingSettings settings(PluginContext& context, const Zero2Options& options) {
    toolbox::ShardingSettings settings;
    settings.gradients = toolbox::gradient_sharding(context.plugin_name(), options);
    settings.parameters.overlap = options.overlap_comm;
    settings.parameters.piece_elements = std::min(options.reduce_bucket_size, options.allgather_bucket_size);
    settings.gradients.whole = options.gradient_reduction == "last_micro_batch";
    settings.gradients.reduce_scatter = options.reduce_scatter;
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Zero2, Zero2Options, ZERO2_OPTIONS)
