// Partitioner cleared: zero3 with its default options, whose buffers for gradients are filled with zeros that all
// products then add to. It shows what it is worth to write the first ones instead (LentGradient::empty).
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

namespace {

using namespace strata;

#define CLEARED_OPTIONS(OPTION) \
  STRATA_GATHER_OPTIONS(OPTION) \
  STRATA_REDUCE_OPTIONS(OPTION)
STRATA_OPTIONS(ClearedOptions, CLEARED_OPTIONS)

class Cleared final : public toolbox::ShardedPartitioner {
 public:
  Cleared(PluginContext&, const ClearedOptions& options) : ShardedPartitioner(settings(options)) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    const LentGradient lent = ShardedPartitioner::gradient(flat, accumulation);
    if (lent.empty) lent.values.zero_();
    return lent.values;
  }

 private:
  static toolbox::ShardingSettings settings(const ClearedOptions& options) {
    toolbox::ShardingSettings settings;
    settings.parameters.released = true;
    settings.parameters.overlap = options.overlap_comm;
    settings.parameters.piece_elements = options.reduce_bucket_size;
    settings.parameters.persistence_threshold = options.persistence_threshold;
    settings.parameters.model_persistence_threshold = options.model_persistence_threshold;
    settings.gradients = toolbox::gradient_sharding("partitioner/cleared", options);
    settings.lookahead = toolbox::gather_lookahead(options);
    return settings;
  }
};

}  // namespace

STRATA_PLUGIN(Cleared, ClearedOptions, CLEARED_OPTIONS)
