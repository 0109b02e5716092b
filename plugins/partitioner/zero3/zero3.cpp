// ZeRO stage 3 (Rajbhandari et al., arXiv:1910.02054): each data-parallel rank keeps 1/N of every layer's parameters,
// gradient and optimizer state. Parameters are gathered into a slot for their use and released after it; a gradient is
// whole from its backward until it is summed, each rank adding its part to what it has accumulated.
//
// Sent in a step of A micro-batches over what ddp sends, P and R as in <strata/toolbox/sharded_partitioner.hpp>:
//
// - with max_reuse_distance: 0, (A R + 2A P) / 2R, which is 3A/2 where parameters and the reduction have one dtype;
// - and with gradient_reduction: last_micro_batch, (R + 2A P) / 2R, which is (1 + 2A) / 2; whole gradients are kept;
// - by default less: the last layer, whose backward follows its forward, is gathered A times, and not 2A, and the first
//   A + 1 times.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

namespace {

using namespace strata;

#define ZERO3_OPTIONS(OPTION)   \
  STRATA_GATHER_OPTIONS(OPTION) \
  STRATA_REDUCE_OPTIONS(OPTION) \
  STRATA_REDUCTION_TIME_OPTION(OPTION)
STRATA_OPTIONS(Zero3Options, ZERO3_OPTIONS)

class Zero3 final : public toolbox::ShardedPartitioner {
 public:
  Zero3(PluginContext& context, const Zero3Options& options) : ShardedPartitioner(settings(context, options)) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }

 private:
  static toolbox::ShardingSettings settings(PluginContext& context, const Zero3Options& options) {
    toolbox::ShardingSettings settings;
    settings.gradients = toolbox::gradient_sharding(context.plugin_name(), options);
    settings.parameters.released = true;
    settings.parameters.overlap = options.overlap_comm;
    settings.parameters.piece_elements = options.reduce_bucket_size;
    settings.parameters.persistence_threshold = options.persistence_threshold;
    settings.parameters.model_persistence_threshold = options.model_persistence_threshold;
    settings.gradients.whole = options.gradient_reduction == "last_micro_batch";
    settings.lookahead = toolbox::gather_lookahead(options);
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Zero3, Zero3Options, ZERO3_OPTIONS)
