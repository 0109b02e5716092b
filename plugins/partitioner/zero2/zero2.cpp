// Partitioner zero2: ZeRO stage 2 (Rajbhandari et al., arXiv:1910.02054). Each of N data-parallel ranks keeps 1/N of
// every layer's gradient and optimizer state. A layer's full gradient exists from its backward until it is reduced;
// each rank adds its part of the sum to its accumulated part. The updated parts of the parameters are all-gathered
// while the next step begins.
//
// Bytes sent per step of A micro-batches relative to ddp, P and R as in <strata/toolbox/sharded_partitioner.hpp>:
//
// - (A R + P) / 2R, which is (A + 1) / 2 if parameters and the reduction have the same dtype;
// - (2A R + P) / 2R without reduce_scatter;
// - with gradient_reduction: last_micro_batch as much as zero1, and full gradients are kept as there.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/row_sums.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define ZERO2_OPTIONS(OPTION)          \
  STRATA_REDUCE_OPTIONS(OPTION)        \
  STRATA_REDUCE_SCATTER_OPTION(OPTION) \
  STRATA_REDUCTION_TIME_OPTION(OPTION) \
  STRATA_ALLGATHER_OPTION(OPTION)      \
  STRATA_SPARSE_OPTION(OPTION)         \
  STRATA_COMPRESSION_OPTIONS(OPTION)
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
    toolbox::compress(context, options, settings);
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Zero2, Zero2Options, ZERO2_OPTIONS)
