// Partitioner zero3: ZeRO stage 3 (Rajbhandari et al., arXiv:1910.02054). Each of N data-parallel ranks keeps 1/N of
// every layer's parameters, gradient and optimizer state. Parameters are all-gathered into a slot before their use and
// released after it. A layer's full gradient exists from its backward until it is reduced; each rank adds its part of
// the sum to its accumulated part.
//
// Bytes sent per step of A micro-batches relative to ddp, P and R as in <strata/toolbox/sharded_partitioner.hpp>:
//
// - with max_reuse_distance: 0: (A R + 2A P) / 2R, which is 3A/2 if parameters and the reduction have the same dtype;
// - also with gradient_reduction: last_micro_batch: (R + 2A P) / 2R, which is (1 + 2A) / 2; full gradients are kept;
// - by default less: the last layer, whose backward directly follows its forward, is gathered A times instead of 2A,
//   and the first layer, whose forward directly follows its backward, A + 1 times.
//
// A layer whose backward reads no weights, as an embedding, is gathered A times instead of 2A in all of them.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

namespace {

using namespace strata;

#define ZERO3_OPTIONS(OPTION)          \
  STRATA_GATHER_OPTIONS(OPTION)        \
  STRATA_REDUCE_OPTIONS(OPTION)        \
  STRATA_REDUCTION_TIME_OPTION(OPTION) \
  STRATA_COMPRESSION_OPTIONS(OPTION)
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
    if (options.persistence_threshold == 0)
      toolbox::check_idle(context.plugin_name(), "model_persistence_threshold", options.model_persistence_threshold,
                          Zero3Options().model_persistence_threshold, "persistence_threshold");
    settings.parameters.persistence_threshold = options.persistence_threshold;
    settings.parameters.model_persistence_threshold = options.model_persistence_threshold;
    settings.gradients.whole = options.gradient_reduction == "last_micro_batch";
    settings.lookahead = toolbox::gather_lookahead(options);
    toolbox::compress(context, options, settings);
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Zero3, Zero3Options, ZERO3_OPTIONS)
