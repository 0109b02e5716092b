// Precision fp8 with weights that travel as they are multiplied: the numbers of the run in which they travel in bf16.
#include "ranks.hpp"

using namespace strata;

namespace {

struct Gathering {
  int ranks;
  std::vector<std::string> settings;
};

const std::vector<Gathering> gatherings{
    {1, {"partitioner.plugin=zero3"}},
    {2, {"partitioner.plugin=zero1"}},
    {3, {"partitioner.plugin=zero2", "activations.checkpoint=all"}},
    {2, {"partitioner.plugin=zero3", "train.accumulation=3", "train.global_batch=12"}},
    {3, {"partitioner.plugin=zero3", "partitioner.zero3.persistence_threshold=3000", "activations.checkpoint=all"}},
    {3, {"partitioner.plugin=zero3", "partitioner.zero3.reduce_bucket_size=700", "optimizer.plugin=sgd"}},
    {3, {"partitioner.plugin=zero3", "precision.fp8.master=bf16", "step_policy=delayed"}},
    {2, {"partitioner.plugin=zero3", "precision.fp8.keep_bf16='*.dense_h_to_4h.weight,*.0.attention.dense.weight'"}},
    {2, {"partitioner.plugin=zero3", "offload.parameters.plugin=cpu", "offload.optimizer.plugin=cpu"}},
    {2, {"partitioner.plugin=zero1", "step_policy=speculative", "train.clip=0.01"}},
    {3, {"partitioner.plugin=zero1", "optimizer.plugin=muon"}},  // pieces of one owner
    {4, {"partitioner.plugin=hybrid", "step_policy=local", "local.steps=2"}},
    {4, {"partitioner.plugin=hybrid", "partitioner.hybrid.secondary_shard=true"}},
    {4, {"partitioner.plugin=zero3", "parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1"}},
    {4, {"partitioner.plugin=zero3", "parallel.tensor=2"}}};

struct Trained {
  std::vector<double> losses, norms;
  std::int64_t magnitudes = 0;  // bytes of rank 0, beside what else is of their category
};

Trained trained(const Gathering& of, const std::vector<std::string>& more) {
  const Config config;
  std::vector<std::string> settings{config.data(),           "model.plugin=gpt_neox",   "model.hidden_size=32",
                                    "model.layers=2",        "model.heads=4",           "model.intermediate_size=40",
                                    "model.vocabulary=101",  "precision.plugin=fp8",    "train.micro_batch=2",
                                    "train.global_batch=24", "train.accumulation=auto", "learning_rate.base=0.01"};
  settings.insert(settings.end(), of.settings.begin(), of.settings.end());
  settings.insert(settings.end(), more.begin(), more.end());
  Trained result;  // with any model among the plugins the config's is chosen
  on_engines(
      of.ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        Trained mine;
        for (int step = 0; step < 4; ++step) {
          const StepResult done = rank.engine.train_batch(rank.engine.batches());
          mine.losses.push_back(done.loss);
          mine.norms.push_back(done.gradient_norm);
        }
        mine.magnitudes =
            rank.run.session().stage().memory.store().ledger().peak[static_cast<std::size_t>(Category::Staging)][0];
        if (rank.engine.rank() == 0) result = mine;
      },
      {{PluginKind::Model, "small", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}}});
  return result;
}

}  // namespace

TEST_CASE("gathering weights in 8 bits changes no loss and no gradient") {
  for (const Gathering& of : gatherings) {
    CAPTURE(of.ranks, of.settings);
    const Trained as_they_are = trained(of, {}), rounded = trained(of, {"precision.fp8.gather=fp8"});
    CHECK(rounded.losses == as_they_are.losses);
    CHECK(rounded.norms == as_they_are.norms);
    CHECK((rounded.magnitudes > as_they_are.magnitudes) == (of.ranks > 1));
  }
}

TEST_CASE("with delayed scaling such weights have their own scale, the same on all layouts") {
  const std::vector<std::string> delayed{"precision.fp8.gather=fp8", "precision.fp8.scaling=delayed"};
  const Trained whole = trained({2, {"partitioner.plugin=zero1"}}, delayed);
  const Trained parts =
      trained({2, {"partitioner.plugin=zero3", "partitioner.zero3.gradient_reduction=last_micro_batch"}}, delayed);
  CHECK(parts.losses == whole.losses);
  CHECK(parts.norms == whole.norms);
}

TEST_CASE("8-bit weights of the precision and of the partitioner exclude each other") {
  for (const int ranks : {1, 2})
    CHECK_THROWS_WITH(
        trained({ranks, {"partitioner.plugin=zero3", "partitioner.zero3.weights_on_wire=int8"}},
                {"precision.fp8.gather=fp8"}),
        Catch::Contains("weights_on_wire is int8") && Catch::Contains("leave weights_on_wire or that option"));
}
