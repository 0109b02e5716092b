#include "tools/compare/promise.hpp"

#include "catch.hpp"
#include "config/defaults.hpp"
#include "plugins/engine_plugins.hpp"

namespace strata::cli {
namespace {

constexpr double rounding = 1e-5;

resolve::ResolvedRun run_with(std::vector<std::string> settings) {
  static const auto registry = plugins::open_registry("");
  settings.insert(settings.begin(),
                  {"device=cpu", "data.path=x.bin", "model.plugin=gpt_neox", "model.preset=pythia-14m",
                   "model.seq_len=64", "train.steps=1", "learning_rate.base=1", "train.global_batch=8"});
  return resolve::resolve_run({config::read_defaults(), config::read_settings(settings)},
                              config::World::started_here(4), registry, plugins::EnginePlugins(registry));
}

std::optional<compare::Promise> promised(const std::vector<std::string>& run,
                                         const std::vector<std::string>& baseline) {
  return promise(run_with(run), run_with(baseline), rounding);
}

}  // namespace

TEST_CASE("a comparison's bound is that of the differing plugins and of reordered sums") {
  const std::vector<std::string> plain{"partitioner=zero2", "scheduler=1f1b", "parallel.pipeline=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plain.begin(), plain.end());
    return more;
  };
  CHECK(promised(with({"partitioner=zero3"}), plain)->bound == rounding);
  CHECK(promised(with({"scheduler=zero_bubble_h1"}), plain)->bound == 0.0);
  CHECK(promised(with({"scheduler=zero_bubble_h1", "train.micro_batch=1"}), with({"train.micro_batch=2"}))->bound ==
        rounding);
  CHECK_FALSE(promised(with({"optimizer=sgd"}), plain));
  CHECK(promised(with({"partitioner=zero3"}), plain)->of_gradients);
  CHECK_FALSE(promised(with({"precision=bf16"}), plain)->of_gradients);  // tolerance(b) is a promise of losses
  CHECK_FALSE(promised(with({"train.micro_batch=1"}), with({"train.micro_batch=2"})));  // no plugin differs

  // The precision is the same in both, and rounds other sums where the layout differs.
  const auto alike = promised(with({"precision=bf16", "scheduler=zero_bubble_h1"}), with({"precision=bf16"}));
  CHECK(alike->bound == 0.0);
  CHECK(alike->text.find("precision/bf16") == std::string::npos);
  const auto apart = promised(with({"precision=bf16", "scheduler=zero_bubble_h1", "train.micro_batch=1"}),
                              with({"precision=bf16", "train.micro_batch=2"}));
  CHECK(apart->bound == 2e-2);
  CHECK(apart->of_gradients);
  CHECK(apart->text.find("precision/bf16 declares tolerance(0.02)") != std::string::npos);
  CHECK_FALSE(promised({"partitioner=zero2", "train.clip=0", "scheduler=pipedream", "parallel.pipeline=2"},
                       {"partitioner=zero1", "train.clip=0", "scheduler=pipedream", "parallel.pipeline=4"}));
}

}  // namespace strata::cli
