// Counts one micro-batch of one rank in one step `factor` times: 0 loses it, 2 counts it twice, 1 is right. What it
// sends may be compressed, so that the bounds of that are tried too.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>
#include <strata/toolbox/sharding_options.hpp>

#include <map>

namespace {

using namespace strata;

#define MISCOUNTS_OPTIONS(OPTION)                                          \
  OPTION(number, factor, 1.0, "min=0", "", "How often it counts.")         \
  OPTION(integer, step, 0, "min=0", "steps", "The step, from 0.")          \
  OPTION(integer, micro_batch, 1, "min=0", "", "The micro-batch, from 0.") \
  STRATA_COMPRESSION_OPTIONS(OPTION)
STRATA_OPTIONS(MiscountsOptions, MISCOUNTS_OPTIONS)

class Miscounts final : public toolbox::ShardedPartitioner {
 public:
  Miscounts(PluginContext& context, const MiscountsOptions& options)
      : ShardedPartitioner(settings(context, options)), options_(options) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void attach(PartitionContext& context) override {
    ShardedPartitioner::attach(context);
    is_wrong_ = context.group("shard").rank() == 0;
  }
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    LentGradient gradient = ShardedPartitioner::gradient(flat, accumulation);
    lent_[&flat] = gradient.values;
    return gradient;
  }
  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    std::int64_t& micro_batch = micro_batch_[&flat];
    micro_batch = accumulation.first ? 0 : micro_batch + 1;
    const bool here = is_wrong_ && step_ == options_.step && micro_batch == options_.micro_batch;
    if (here && options_.factor != 1.0) lent_.at(&flat).mul_(options_.factor);
    ShardedPartitioner::reduce(flat, accumulation);
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    if (flat.info().id == 0) ++step_;
  }

 private:
  static toolbox::ShardingSettings settings(PluginContext& context, const MiscountsOptions& options) {
    toolbox::ShardingSettings settings;
    toolbox::compress(context, options, settings);
    return settings;
  }

  MiscountsOptions options_;
  bool is_wrong_ = false;
  std::int64_t step_ = 0;
  std::map<FlatParameter*, at::Tensor> lent_;
  std::map<FlatParameter*, std::int64_t> micro_batch_;
};

}  // namespace

STRATA_PLUGIN(Miscounts, MiscountsOptions, MISCOUNTS_OPTIONS)
