// What a precision policy measures in a step: its maxima are of all ranks, and of nothing but the step.
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <strata/options.hpp>
#include <strata/toolbox/skip_policy.hpp>

#include <algorithm>
#include <limits>

#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(MeasuringOptions)

using Numbers = std::vector<double>;  // the largest |x| and |dy|

std::mutex maxima_mutex;
std::vector<std::vector<Numbers>> agreed, own;  // by rank, then step
std::vector<std::string> attached;              // names of rank 0's

// fp32, and the magnitudes of what its products read.
class Measuring final : public UnscaledPolicy {
 public:
  Measuring(PluginContext& context, const MeasuringOptions&)
      : UnscaledPolicy(0), rank_(static_cast<std::size_t>(context.rank())) {}
  DTypes dtypes(const ParameterInfo&) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }

  void attach(const std::vector<LayerInfo>& layers) override {
    if (rank_ != 0) return;
    attached.clear();
    for (const LayerInfo& layer : layers)
      for (const ParameterInfo& parameter : layer.parameters) attached.push_back(parameter.name);
  }
  at::Tensor maxima() override { return maxima_; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const at::Tensor& b) override {
    measure(0, x);
    return UnscaledPolicy::linear(x, w, b);
  }
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const ParameterInfo& w, const at::Tensor& into,
                           bool first) override {
    measure(1, dy);
    UnscaledPolicy::add_weight_gradient(dy, x, w, into, first);
  }
  Verdict judge(const GradientHealth& health) override {
    const std::lock_guard lock(maxima_mutex);
    agreed[rank_].push_back({maxima_[0].item<float>(), maxima_[1].item<float>()});
    own[rank_].push_back(std::exchange(mine_, Numbers(2)));
    return UnscaledPolicy::judge(health);
  }
  void forget() { mine_ = Numbers(2); }

 private:
  void measure(std::int64_t number, const at::Tensor& tensor) {
    const at::Tensor magnitude = tensor.abs().max(), so_far = maxima_[number];
    so_far.copy_(at::maximum(so_far, magnitude));
    double& mine = mine_[static_cast<std::size_t>(number)];
    mine = std::max(mine, double{magnitude.item<float>()});
  }

  std::size_t rank_;
  at::Tensor maxima_ = at::zeros({2});
  Numbers mine_ = Numbers(2);
};

std::vector<ProgramPlugin> plugins() {
  return {
      {PluginKind::Model, "small_one", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}},
      program_plugin<PrecisionPolicy, Measuring, MeasuringOptions>("measuring")};
}

std::vector<std::string> with(const Config& config, std::vector<std::string> settings) {
  settings.insert(settings.begin(), {config.data(), "model.plugin=small_one", "precision.plugin=measuring",
                                     "train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto"});
  return settings;
}

// Trains three steps, with an evaluation of other batches after each, whose inputs are larger by far.
void train(int ranks, const std::vector<std::string>& settings) {
  agreed = own = std::vector<std::vector<Numbers>>(static_cast<std::size_t>(ranks));
  const Config config;
  on_engines(
      ranks, config.file(), with(config, settings),
      [&](const LocalRank& rank) {
        for (int step = 0; step < 3; ++step) {
          rank.engine.train_batch(rank.engine.batches());
          auto& policy = static_cast<Measuring&>(*rank.run.session().stage().plugins.precision);
          policy.maxima().fill_(1e6F);  // as though an evaluation had measured
          policy.forget();
        }
      },
      plugins());
}

}  // namespace

TEST_CASE("maxima are of all ranks and of one step, though layers are computed again") {
  const std::string layout = GENERATE("partitioner.plugin=ddp", "partitioner.plugin=zero3", "parallel.pipeline=2");
  const std::string again = GENERATE("activations.checkpoint=none", "activations.checkpoint=all");
  CAPTURE(layout, again);
  std::vector<std::string> settings{layout, again};
  if (layout == "parallel.pipeline=2") settings.emplace_back("scheduler.plugin=1f1b");
  train(2, settings);
  REQUIRE(agreed[0].size() == 3);
  CHECK(agreed[0] == agreed[1]);
  for (std::size_t step = 0; step < 3; ++step)
    for (std::size_t number = 0; number < 2; ++number) {
      CHECK(agreed[0][step][number] == std::max(own[0][step][number], own[1][step][number]));
      CHECK(agreed[0][step][number] > 0.0);
    }
  CHECK(own[0] != own[1]);
  CHECK(attached == std::vector<std::string>{"embedding.weight", "hidden.weight", "head.weight"});
}

TEST_CASE("a policy that measures does not run with a step that begins before the last one ended") {
  CHECK_THROWS_WITH(train(1, {"step_policy=speculative"}), Catch::Contains("step_policy is speculative") &&
                                                               Catch::Contains("precision/measuring") &&
                                                               Catch::Contains("set step_policy: plain or delayed"));
}
