// `step_policy: speculative`: stages begin the next step before the norm is known, and every bit is as with `plain`.
#include <ATen/ops/equal.h>
#include <strata/options.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "every_pair.hpp"
#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(TenLayersOptions)

// Notes the seed of backward with which each micro-batch of each step was computed last.
struct WatchedEmbedding final : EmbeddingLayer {
  using EmbeddingLayer::EmbeddingLayer;
  using Seeds = std::map<std::pair<std::int64_t, std::int64_t>, double>;  // by the step's key and the first sample
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    if (batch.loss_seed.defined() && !batch.loss_seed.is_meta()) {
      const std::lock_guard lock(mutex);
      seeds[{batch.random_key.item<std::int64_t>(), batch.sample}] = batch.loss_seed.item<double>();
    }
    return EmbeddingLayer::forward(input, batch);
  }
  static inline std::mutex mutex;
  static inline Seeds seeds;
};

struct TenLayers final : SequentialModel {
  TenLayers(PluginContext&, const TenLayersOptions&) : SequentialModel(::vocabulary) {
    add<WatchedEmbedding>("embedding", ::vocabulary, width);
    for (int layer = 0; layer < 8; ++layer) add<HiddenLayer>("hidden" + std::to_string(layer), width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

std::vector<ProgramPlugin> ten_layers() {
  return {program_plugin<Model, TenLayers, TenLayersOptions>("ten", {Capability::SplittableBackward})};
}

std::vector<std::string> with_model(const Config& config, std::vector<std::string> settings) {
  settings.insert(settings.begin(), {config.data(), "model.plugin=ten", "train.global_batch=16", "train.micro_batch=2",
                                     "train.accumulation=auto", "train.steps=8", "learning_rate.base=0.1"});
  return settings;
}

struct SpeculativeRun {
  std::vector<double> losses, norms;
  std::vector<bool> applied;
  std::map<std::string, at::Tensor> masters;  // by rank, parameter and begin
  std::map<int, Ledger> ledgers;              // by rank
  int made_again = 0;
  bool looks_ahead = false;
};

// `between` is called after each step. Goes on from `from`, if it names a checkpoint.
SpeculativeRun trained_in_pipeline(const Config& config, int ranks, const std::vector<std::string>& settings,
                                   const std::function<void(const LocalRank&)>& between = {},
                                   const std::string& from = "", fakes::Movement movement = fakes::Movement::AtStart) {
  SpeculativeRun result;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), with_model(config, settings),
      [&](const LocalRank& rank) {
        SpeculativeRun mine;
        if (!from.empty()) rank.run.resume(from);
        while (rank.run.steps_done() < rank.run.config().train.steps) {
          const report::StepRecord made = rank.run.step();
          mine.losses.push_back(made.outcome.loss);
          mine.norms.push_back(made.outcome.gradient_norm);
          mine.applied.push_back(made.applied);
          mine.made_again += made.outcome.made_again ? 1 : 0;
          if (made.step == 0) rank.run.session().store().reset_peaks();  // the first step makes the slots
          if (between) between(rank);
        }
        const stage::Stage& stage = rank.run.session().stage();
        const std::lock_guard lock(mutex);
        result.losses = mine.losses;
        result.norms = mine.norms;
        result.applied = mine.applied;
        result.made_again = mine.made_again;
        result.looks_ahead = rank.run.session().looks_ahead();
        result.ledgers[rank.engine.rank()] = rank.run.session().store().ledger();
        for (const auto& entry : stage.updates.state().entries())
          stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& master) {
            result.masters[std::to_string(rank.engine.rank()) + ": " + entry.piece.info.parameter + " from " +
                           std::to_string(entry.piece.info.begin)] = master.clone();
          });
      },
      ten_layers(), movement);
  return result;
}

void check_same(const SpeculativeRun& one, const SpeculativeRun& other) {
  CHECK(std::ranges::equal(one.losses, other.losses));
  CHECK(std::ranges::equal(one.applied, other.applied));
  for (std::size_t step = 0; step < one.norms.size(); ++step)
    CHECK((one.norms[step] == other.norms[step] || (one.norms[step] != one.norms[step] && !one.applied[step])));
  REQUIRE(one.masters.size() == other.masters.size());
  for (const auto& [name, master] : one.masters) {
    CAPTURE(name);
    CHECK(at::equal(master, other.masters.at(name)));
  }
}

// A clip that about half of the steps reach.
double middle_of(std::vector<double> norms) {
  std::ranges::sort(norms);
  return (norms[norms.size() / 2 - 1] + norms[norms.size() / 2]) / 2;
}

}  // namespace

TEST_CASE("a speculative run has every bit of a plain one, where steps are clipped and where they are not") {
  const Config config;
  struct Update {
    std::string optimizer, precision;
  };
  const std::vector<Update> updates{{"sgd", "fp32"},          {"adamw", "fp32"},     {"adamw", "bf16"},
                                    {"adamw", "fp8"},         {"adafactor", "fp32"}, {"muon", "fp32"},
                                    {"schedule_free", "bf16"}};
  std::map<std::string, double> clips;  // by what makes another norm than rounding does
  for (const auto& [partitioner, update, stages] :
       every_pair(Names{"ddp", "zero1", "zero2", "zero3"}, updates, std::vector{2, 4})) {
    const std::string pipeline = "parallel.pipeline=" + std::to_string(stages);
    std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v",
                                      "partitioner.plugin=" + partitioner,
                                      "optimizer.plugin=" + update.optimizer,
                                      "precision.plugin=" + update.precision,
                                      pipeline,
                                      "train.clip=0"};
    if (stages == 2) settings.push_back("activations.checkpoint=all");
    CAPTURE(settings);
    const auto [clip, fresh] = clips.try_emplace(update.optimizer + update.precision + pipeline);
    if (fresh) clip->second = middle_of(trained_in_pipeline(config, 4, settings).norms);
    settings.push_back("train.clip=" + std::to_string(clip->second));
    const SpeculativeRun plain = trained_in_pipeline(config, 4, settings);
    settings.push_back("step_policy=speculative");
    const SpeculativeRun speculative = trained_in_pipeline(config, 4, settings);
    check_same(speculative, plain);
    CHECK(speculative.looks_ahead);
    CHECK(speculative.made_again > 0);
    CHECK(speculative.made_again < 8);
    CHECK_FALSE(plain.looks_ahead);
    CHECK(plain.made_again == 0);
  }
}

TEST_CASE("values are taken back when nothing sends them any more") {
  const Config config;
  const std::string partitioner = GENERATE("zero1", "zero2");
  const std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v", "parallel.pipeline=2", "train.clip=1e-3",
                                          "partitioner.plugin=" + partitioner, "step_policy=speculative"};
  CHECK(trained_in_pipeline(config, 4, settings, {}, "", fakes::Movement::AtWait).made_again == 8);
}

TEST_CASE("a step that overflows in fp16 on one stage is taken back on all") {
  const Config config;
  std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v",
                                    "parallel.pipeline=2",
                                    "precision.plugin=fp16",
                                    "precision.fp16.initial_scale_power=20",
                                    "precision.fp16.hysteresis=1",
                                    "precision.fp16.loss_scale_window=2",
                                    "train.steps=24",
                                    "optimizer.plugin=" + GENERATE(as<std::string>(), "adamw", "schedule_free")};
  const SpeculativeRun plain = trained_in_pipeline(config, 2, settings);
  settings.push_back("step_policy=speculative");
  const SpeculativeRun speculative = trained_in_pipeline(config, 2, settings);
  check_same(speculative, plain);
  const auto skipped = std::ranges::count(speculative.applied, false);
  CHECK(skipped > 1);
  CHECK(speculative.made_again >= skipped);
  CHECK(speculative.made_again < 24);
}

TEST_CASE("forwards made ahead run again after the loss scale grows") {
  const Config config;
  const auto seeds = [&](const std::string& policy) {
    WatchedEmbedding::seeds.clear();
    const SpeculativeRun run = trained_in_pipeline(
        config, 2,
        {"scheduler.plugin=zero_bubble_v", "parallel.pipeline=2", "precision.plugin=fp16", "train.clip=0",
         "precision.fp16.initial_scale_power=4", "precision.fp16.loss_scale_window=2", "step_policy=" + policy});
    CHECK(std::ranges::count(run.applied, false) == 0);
    return WatchedEmbedding::seeds;
  };
  const WatchedEmbedding::Seeds plain = seeds("plain");
  std::set<double> scales;
  for (const auto& [place, seed] : plain) scales.insert(seed);
  CHECK(scales.size() == 4);  // 8 steps, two with each
  CHECK(seeds("speculative") == plain);
}

TEST_CASE("work ahead on the next step is dropped when another call intervenes") {
  const Config config;
  std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v", "parallel.pipeline=2", "partitioner.plugin=zero3",
                                    "validation.path=" + config.tokens(), "validation.every=3"};
  const auto between = [](const LocalRank& rank) {
    if (rank.run.validation_due()) rank.run.validate();
    if (rank.run.steps_done() == 4) rank.engine.evaluate();
    if (rank.run.steps_done() == 5) rank.engine.train_batch(rank.engine.batches());
  };
  const SpeculativeRun plain = trained_in_pipeline(config, 2, settings, between);
  settings.push_back("step_policy=speculative");
  check_same(trained_in_pipeline(config, 2, settings, between), plain);
}

TEST_CASE("a checkpoint of a speculative run is a plain run's, and the other way round") {
  const Config config;
  const std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v", "parallel.pipeline=2"};
  const std::string other = GENERATE("plain", "speculative");
  std::vector<std::string> saving = settings, resuming = settings;
  saving.insert(saving.end(), {"step_policy=" + std::string(other == "plain" ? "speculative" : "plain"),
                               "checkpoint.path=" + (config / "saved"), "checkpoint.every=4"});
  resuming.push_back("step_policy=" + other);
  const SpeculativeRun whole = trained_in_pipeline(config, 2, saving, [](const LocalRank& rank) {
    if (rank.run.checkpoint_due()) rank.run.save_checkpoint();
  });
  SpeculativeRun resumed;
  resumed = trained_in_pipeline(config, 2, resuming, {}, config / "saved/step-4");
  CHECK(resumed.losses == std::vector<double>(whole.losses.begin() + 4, whole.losses.end()));
  for (const auto& [name, master] : whole.masters) CHECK(at::equal(master, resumed.masters.at(name)));
}

TEST_CASE("a speculative run's plan is its ledger: master weights and optimizer state twice") {
  const Config config;
  std::vector<std::string> settings{"scheduler.plugin=zero_bubble_v", "parallel.pipeline=2",
                                    "optimizer.plugin=" + GENERATE(as<std::string>(), "sgd", "adamw")};
  const SpeculativeRun plain = trained_in_pipeline(config, 2, settings);
  settings.push_back("step_policy=speculative");
  const SpeculativeRun speculative = trained_in_pipeline(config, 2, settings);
  for (const auto& [rank, ledger] : speculative.ledgers) {
    const resolve::ResolvedRun resolved =
        read_program_config(nullptr, config.file(), with_model(config, settings), ten_layers(), {2, "the test"});
    const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
    CHECK(planned.peak == ledger.peak);
    CHECK(planned.total_peak == ledger.total_peak);
    const auto held = [](const Ledger& of, Category category) {
      return of.now[static_cast<std::size_t>(category)][static_cast<std::size_t>(Tier::Device)];
    };
    const Ledger& one = plain.ledgers.at(rank);
    CHECK(held(ledger, Category::Optimizer) - held(one, Category::Optimizer) ==
          held(one, Category::Optimizer) + held(one, Category::Parameter));
  }
}

TEST_CASE("a run that cannot look ahead is a plain one; offload is refused") {
  const Config config;
  for (const std::string scheduler : {"1f1b", "sequential"}) {
    std::vector<std::string> settings{"scheduler.plugin=" + scheduler, "step_policy=speculative"};
    if (scheduler == "1f1b") settings.push_back("parallel.pipeline=2");
    CHECK_FALSE(trained_in_pipeline(config, 2, settings).looks_ahead);
  }
  CHECK_THAT(error_of<UserError>([&] {
               initialize(small_model(), config.file(), {"step_policy=speculative", "offload.optimizer.plugin=cpu"});
             }),
             Contains("offload.optimizer is set, and step_policy is speculative"));
}
