// Partitioner hybrid: shards inside groups of `shard_size` adjacent ranks and replicates across groups (HSDP; MiCS,
// arXiv:2205.00119). All-gathers and reduce-scatters stay inside a group, e.g. a machine; only each rank's part of the
// summed gradient is all-reduced across groups, once per step.
//
// With secondary_shard (hpZ of ZeRO++, arXiv:2306.10209) everything is sharded over all ranks as in zero3, and each
// group keeps a second copy of the parameters, sharded inside the group.
//
// Bytes sent per step by one of N ranks in r = N/s groups of s, P and R as in <strata/toolbox/sharded_partitioner.hpp>:
//
// - inside a group as much as zero1, zero2 or zero3 on s ranks, plus 2 R/s (r-1)/r across groups;
// - with secondary_shard as much as zero3 on N ranks, except that only the first gather after an update goes over all
//   ranks, P (N-1)/N; the other gathers of the step stay inside a group, P (s-1)/s each.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/idle_option.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

#include <algorithm>
#include <string>

namespace {

using namespace strata;

#define HYBRID_OPTIONS(OPTION)                                                                                      \
  OPTION(integer, shard_size, 2, "min=1", "ranks", "Ranks per shard group; must divide the data-parallel size.")    \
  OPTION(text, stage, "3", "one_of=1|2|3", "",                                                                      \
         "ZeRO stage inside a group. 1: shards optimizer state; 2: also gradients; 3: also parameters.")            \
  OPTION(boolean, secondary_shard, false, "", "",                                                                   \
         "Shard over all ranks, and keep a second copy of the parameters sharded inside each group; stage 3 only. " \
         "Only the first gather of a step leaves the group.")                                                       \
  STRATA_GATHER_OPTIONS(OPTION)                                                                                     \
  STRATA_REDUCE_OPTIONS(OPTION)                                                                                     \
  STRATA_REDUCTION_TIME_OPTION(OPTION)                                                                              \
  STRATA_ALLGATHER_OPTION(OPTION)                                                                                   \
  STRATA_COMPRESSION_OPTIONS(OPTION)
STRATA_OPTIONS(HybridOptions, HYBRID_OPTIONS)

class Hybrid final : public toolbox::ShardedPartitioner {
 public:
  Hybrid(PluginContext& context, const HybridOptions& options)
      : ShardedPartitioner(settings(context, options)), name_(context.plugin_name()), options_(options) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    const int size = checked_size(mesh.data_parallel());
    GroupSpec adjacent{options_.secondary_shard ? "secondary" : "shard", {}};
    GroupSpec across{options_.secondary_shard ? "shard" : "replicate", {}};
    for (int begin = 0; begin < mesh.data_parallel(); begin += size) adjacent.members.push_back(ranks(begin, size, 1));
    if (options_.secondary_shard)
      across.members.push_back(ranks(0, mesh.data_parallel(), 1));
    else
      for (int begin = 0; begin < size; ++begin)
        across.members.push_back(ranks(begin, mesh.data_parallel() / size, size));
    return {adjacent, across};
  }

 private:
  static std::vector<int> ranks(int begin, int count, int stride) {
    std::vector<int> members(static_cast<std::size_t>(count));
    for (int& member : members) begin = (member = begin) + stride;
    return members;
  }

  int checked_size(int data_parallel) const {
    if (data_parallel % options_.shard_size == 0) return static_cast<int>(options_.shard_size);
    int below = static_cast<int>(std::min<std::int64_t>(options_.shard_size, data_parallel));
    while (data_parallel % below != 0) --below;
    int above = static_cast<int>(std::min<std::int64_t>(options_.shard_size, data_parallel));
    while (data_parallel % above != 0) ++above;
    throw UserError("{}: shard_size is {}, which does not divide the {} data-parallel ranks; {}", name_,
                    options_.shard_size, data_parallel,
                    below == above
                        ? "the nearest size that does is " + std::to_string(below)
                        : "the nearest sizes that do are " + std::to_string(below) + " and " + std::to_string(above));
  }

  static void check(const std::string& name, const HybridOptions& options) {
    if (options.stage == "3") return;
    if (options.secondary_shard)
      throw UserError("{}: secondary_shard is true and stage is {}; it needs stage 3, which shards parameters", name,
                      options.stage);
    const HybridOptions unset;
    const auto needs_stage_3 = [&](const char* option, bool changed) {
      if (changed)
        throw UserError("{}: {} is set and stage is {}; it needs stage 3, which gathers parameters", name, option,
                        options.stage);
    };
    needs_stage_3("prefetch_layers", options.prefetch_layers != unset.prefetch_layers);
    needs_stage_3("prefetch_bucket_size", options.prefetch_bucket_size != unset.prefetch_bucket_size);
    needs_stage_3("max_live_parameters", options.max_live_parameters != unset.max_live_parameters);
    needs_stage_3("max_reuse_distance", options.max_reuse_distance != unset.max_reuse_distance);
    needs_stage_3("persistence_threshold", options.persistence_threshold != unset.persistence_threshold);
    needs_stage_3("model_persistence_threshold",
                  options.model_persistence_threshold != unset.model_persistence_threshold);
  }

  static toolbox::ShardingSettings settings(PluginContext& context, const HybridOptions& options) {
    check(context.plugin_name(), options);
    toolbox::ShardingSettings settings;
    settings.gradients = toolbox::gradient_sharding(context.plugin_name(), options);
    settings.replicas = !options.secondary_shard;
    settings.secondary = options.secondary_shard;
    settings.parameters.released = options.stage == "3";
    settings.parameters.overlap = options.overlap_comm;
    settings.parameters.piece_elements = std::min(options.reduce_bucket_size, options.allgather_bucket_size);
    if (options.persistence_threshold == 0)
      toolbox::check_idle(context.plugin_name(), "model_persistence_threshold", options.model_persistence_threshold,
                          HybridOptions().model_persistence_threshold, "persistence_threshold");
    settings.parameters.persistence_threshold = options.persistence_threshold;
    settings.parameters.model_persistence_threshold = options.model_persistence_threshold;
    settings.gradients.whole = options.stage == "1" || options.gradient_reduction == "last_micro_batch";
    settings.lookahead = toolbox::gather_lookahead(options);
    toolbox::compress(context, options, settings);
    return settings;
  }

  std::string name_;
  HybridOptions options_;
};

}  // namespace

STRATA_PLUGIN(Hybrid, HybridOptions, HYBRID_OPTIONS)
