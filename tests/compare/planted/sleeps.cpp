// Sleeps for a part of every step: `percent` of the time since it last did.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/data_parallel_group.hpp>
#include <strata/toolbox/sharded_partitioner.hpp>

#include <chrono>
#include <thread>

namespace {

using namespace strata;

#define SLEEPS_OPTIONS(OPTION) OPTION(number, percent, 3, "min=0,max=1000", "%", "Of each step's time.")
STRATA_OPTIONS(SleepsOptions, SLEEPS_OPTIONS)

class Sleeps final : public toolbox::ShardedPartitioner {
 public:
  Sleeps(PluginContext&, const SleepsOptions& options) : ShardedPartitioner({}), percent_(options.percent) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return toolbox::data_parallel_group("shard", mesh);
  }
  void finish_gradients() override {
    ShardedPartitioner::finish_gradients();
    if (step_++ > 0) std::this_thread::sleep_for((Clock::now() - last_) * percent_ / 100.0);
    last_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double percent_;
  std::int64_t step_ = 0;
  Clock::time_point last_;
};

}  // namespace

STRATA_PLUGIN(Sleeps, SleepsOptions, SLEEPS_OPTIONS)
