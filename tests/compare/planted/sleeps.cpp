// Sleeps in every step.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <chrono>
#include <thread>

namespace {

using namespace strata;

#define SLEEPS_OPTIONS(OPTION) OPTION(integer, microseconds, 500, "min=0", "microseconds", "How long, in each step.")
STRATA_OPTIONS(SleepsOptions, SLEEPS_OPTIONS)

class Sleeps final : public toolbox::ShardedPartitioner {
 public:
  Sleeps(PluginContext&, const SleepsOptions& options) : ShardedPartitioner({}), pause_(options.microseconds) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void finish_gradient(FlatParameter& flat) override {
    ShardedPartitioner::finish_gradient(flat);
    if (flat.info().id == 0) std::this_thread::sleep_for(pause_);
  }

 private:
  std::chrono::microseconds pause_;
};

}  // namespace

STRATA_PLUGIN(Sleeps, SleepsOptions, SLEEPS_OPTIONS)
