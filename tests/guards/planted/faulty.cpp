// ZeRO's stage 2 that breaks one rule of <strata/plugin.hpp> or <strata/partitioner.hpp>, which its option names. What
// happens within a step happens on the last rank, in the second one.
#include <fcntl.h>
#include <unistd.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <ATen/ops/ones.h>

#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace strata;

#define FAULTY_OPTIONS(OPTION)                                                                                        \
  OPTION(text, defect, "none",                                                                                        \
         "one_of=none|counts_half|negative|overlaps|counts_outside|writes_values|writes_replica|sleeps|spins|writes_" \
         "disk|exits|"                                                                                                \
         "exits_at_once|aborts|faults|calls_other|sends_other|rounds_up|reads_values|leaks|scales",                   \
         "", "What is wrong.")                                                                                        \
  OPTION(integer, of_first, 1, "min=1", "", "The elements of which calls_other makes a sum on other ranks ...")       \
  OPTION(integer, of_last, 1000, "min=1", "", "... and on the last one.")                                             \
  OPTION(text, path, "", "", "", "A file that writes_disk writes.")
STRATA_OPTIONS(FaultyOptions, FAULTY_OPTIONS)

class Faulty final : public toolbox::ShardedPartitioner {
 public:
  Faulty(PluginContext& /*context*/, const FaultyOptions& options)
      : ShardedPartitioner({.replicas = options.defect == "writes_replica"}),
        options_(options),
        defect_(options.defect) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    if (defect_ != "writes_replica") return toolbox::data_parallel_group("shard", mesh);
    GroupSpec alone{"shard", {}}, all{"replicate", {{}}};
    for (int rank = 0; rank < mesh.size(Axis::Data); ++rank) {
      alone.members.push_back({rank});
      all.members.front().push_back(rank);
    }
    return {alone, all};
  }
  void attach(PartitionContext& context) override {
    ShardedPartitioner::attach(context);
    group_ = &context.group(defect_ == "writes_replica" ? "replicate" : "shard");
    is_last_ = group_->rank() == group_->size() - 1;
    is_dry_ = context.store().dry_run();
  }
  std::vector<Slice> owned() override {
    std::vector<Slice> slices = ShardedPartitioner::owned();
    Slice& slice = slices.front();
    if (defect_ == "counts_half" && is_last_) slice.counted_end -= (slice.counted_end - slice.counted_begin) / 2;
    if (defect_ == "negative") slice.begin = slice.counted_begin = -1;
    if (defect_ == "counts_outside") ++slice.counted_end;
    if (defect_ == "overlaps") slices.push_back(slice);
    return slices;
  }
  void gather(FlatParameter& flat, Phase phase) override {
    ShardedPartitioner::gather(flat, phase);
    if (defect_ == "reads_values") sum_ += flat.memory().sum().item().toDouble();
  }
  void publish(FlatParameter& flat) override {
    ShardedPartitioner::publish(flat);
    if (!defect_.starts_with("writes_") || defect_ == "writes_disk" || !is_last_) return;
    ShardedPartitioner::gather(flat, Phase::Forward);
    flat.memory().narrow(0, 0, 1).add_(1.0);
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    if (defect_ == "scales" && flat.info().id == 1)
      for (const Slice& slice : ShardedPartitioner::owned())
        if (slice.flat == &flat && slice.begin != slice.end) slice.gradient.tensor().mul_(1.01);
    if (flat.info().id == 0 && is_last_ && ++steps_ >= 2) break_rule();
    if (flat.info().id != 0 || is_last_ || ++steps_ < 2 || is_dry_) return;
    const at::Tensor given = at::ones({options_.of_first});
    if (defect_ == "calls_other") group_->all_reduce(given, ReduceOperation::Sum).wait();
    if (defect_ == "sends_other" && group_->rank() == 0) group_->send(given, group_->size() - 1).wait();
  }
  void shutdown() override {
    ShardedPartitioner::shutdown();
    if (defect_ == "sleeps") std::this_thread::sleep_for(std::chrono::hours(1));
    volatile std::int64_t turns = 0;
    while (defect_ == "spins") turns = turns + 1;
    if (defect_ == "writes_disk") write_for(std::chrono::seconds(8));
  }

 private:
  void break_rule() {
    if (is_dry_) return;
    if (defect_ == "exits") std::exit(0);
    if (defect_ == "exits_at_once") ::_exit(0);
    if (defect_ == "aborts") std::abort();
    if (defect_ == "faults") std::raise(SIGSEGV);
    if (defect_ == "rounds_up") std::fesetround(FE_UPWARD);
    if (defect_ == "calls_other") group_->all_reduce(at::ones({options_.of_last}), ReduceOperation::Sum).wait();
    if (defect_ == "sends_other") group_->receive(at::ones({options_.of_last}), 0).wait();
    if (defect_ == "leaks") leaked_.emplace_back(std::size_t{1} << 20, 'x');
  }
  void write_for(std::chrono::seconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    const int file = ::open(options_.path.c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string block(4096, 'x');
    while (std::chrono::steady_clock::now() < end && ::pwrite(file, block.data(), block.size(), 0) > 0) {
      ::fsync(file);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    ::close(file);
  }

  FaultyOptions options_;
  std::string defect_;
  Group* group_ = nullptr;
  bool is_last_ = false, is_dry_ = false;
  int steps_ = 0;
  double sum_ = 0.0;
  std::vector<std::string> leaked_;
};

}  // namespace

STRATA_PLUGIN(Faulty, FaultyOptions, FAULTY_OPTIONS)
