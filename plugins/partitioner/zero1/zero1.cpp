// Partitioner zero1: ZeRO stage 1 (Rajbhandari et al., arXiv:1910.02054). Each of N data-parallel ranks keeps 1/N of
// the optimizer state and updates 1/N of every layer. Full gradients are accumulated and reduce-scattered once per
// step, unless the optimizer sends something itself (<strata/own_exchange.hpp>); the updated parts are all-gathered
// while the next step begins.
//
// Bytes sent per step relative to ddp, for any number of micro-batches: (R + P) / 2R, which is 1 if parameters and the
// reduction have the same dtype, and 3/2 without reduce_scatter. P and R: see <strata/toolbox/sharded_partitioner.hpp>.
#include <strata/options.hpp>
#include <strata/own_exchange.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/row_sums.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define ZERO1_OPTIONS(OPTION)          \
  STRATA_REDUCE_OPTIONS(OPTION)        \
  STRATA_REDUCE_SCATTER_OPTION(OPTION) \
  STRATA_ALLGATHER_OPTION(OPTION)      \
  STRATA_SPARSE_OPTION(OPTION)         \
  STRATA_COMPRESSION_OPTIONS(OPTION)
STRATA_OPTIONS(Zero1Options, ZERO1_OPTIONS)

class Zero1 final : public toolbox::ShardedPartitioner {
 public:
  Zero1(PluginContext& context, const Zero1Options& options) : ShardedPartitioner(settings(context, options)) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }

 private:
  static toolbox::ShardingSettings settings(PluginContext& context, const Zero1Options& options) {
    toolbox::ShardingSettings settings;
    settings.gradients = toolbox::gradient_sharding(context.plugin_name(), options);
    settings.parameters.overlap = options.overlap_comm;
    settings.parameters.piece_elements = std::min(options.reduce_bucket_size, options.allgather_bucket_size);
    settings.gradients.whole = true;
    settings.gradients.reduce_scatter = options.reduce_scatter;
    auto* const exchange = static_cast<OwnExchange*>(context.extension(OwnExchange::id));
    if (exchange != nullptr) exchange->partitioner_can_leave_gradients(false);
    settings.gradients.exchange = exchange;
    toolbox::compress(context, options, settings);
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Zero1, Zero1Options, ZERO1_OPTIONS)
