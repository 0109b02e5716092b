// ZeRO's stage 3 with one defect that its option names.
#include <ATen/TensorOperators.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <map>

namespace {

using namespace strata;

#define WRONG_PARTITIONER_OPTIONS(OPTION)                                                                 \
  OPTION(text, defect, "none",                                                                            \
         "one_of=none|mean_over_ranks|micro_batch_lost|micro_batch_twice|element_lost|not_published", "", \
         "What is wrong.")
STRATA_OPTIONS(WrongPartitionerOptions, WRONG_PARTITIONER_OPTIONS)

class WrongPartitioner final : public toolbox::ShardedPartitioner {
 public:
  WrongPartitioner(PluginContext& /*context*/, const WrongPartitionerOptions& options)
      : ShardedPartitioner({}), defect_(options.defect) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void attach(PartitionContext& context) override {
    ShardedPartitioner::attach(context);
    group_ = &context.group("shard");
  }
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    LentGradient gradient = ShardedPartitioner::gradient(flat, accumulation);
    lent_[&flat] = gradient.values;
    return gradient;
  }
  void reduce(FlatParameter& flat, Accumulation accumulation) override {
    const bool last_of_one = accumulation.last && group_->rank() == 1;
    if (defect_ == "micro_batch_lost" && last_of_one) lent_.at(&flat).zero_();
    if (defect_ == "micro_batch_twice" && last_of_one) lent_.at(&flat).mul_(2);
    ShardedPartitioner::reduce(flat, accumulation);
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    for (const Slice& slice : ShardedPartitioner::owned()) {
      if (slice.flat != &flat || slice.begin == slice.end) continue;
      const at::Tensor gradient = slice.gradient.tensor();
      if (defect_ == "mean_over_ranks") gradient.div_(group_->size());
      if (defect_ == "element_lost" && flat.info().id == 1 && group_->rank() == 0) gradient.narrow(0, 0, 1).zero_();
    }
  }
  void publish(FlatParameter& flat) override {
    const bool of_step = updates_[&flat]++ > 0;  // the first one publishes initial values
    if (defect_ == "not_published" && of_step && flat.info().id == 1) return;
    ShardedPartitioner::publish(flat);
  }

 private:
  std::string defect_;
  Group* group_ = nullptr;
  std::map<FlatParameter*, at::Tensor> lent_;
  std::map<FlatParameter*, int> updates_;
};

}  // namespace

STRATA_PLUGIN(WrongPartitioner, WrongPartitionerOptions, WRONG_PARTITIONER_OPTIONS)
