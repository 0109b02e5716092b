// Runs whose buffers rest on an offload device that the host cannot address: every bit as without it.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <strata/options.hpp>

#include <map>
#include <utility>

#include "every_pair.hpp"
#include "far_memory.hpp"
#include "first.hpp"
#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(SmallOptions)

// Where the backward is split, its product reads the layer's input later.
struct ProductLayer final : OneMatrix {
  ProductLayer(ModelContext& context, std::int64_t rows, std::int64_t columns) : OneMatrix(context, rows, columns) {
    weight_.info.linear_only = true;
  }
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    return {{input[0].add(context_.linear(input[0], weight_))}, {}, {}};
  }
};

struct SmallModel final : SequentialModel {
  SmallModel(PluginContext&, const SmallOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<HiddenLayer>("hidden", width, width);
    add<ProductLayer>("hidden2", width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

// Fails when asked to.
bool layer_fails = false;
struct FailingLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    if (layer_fails) throw UserError("the test's");
    return {{input[0].add(context_.linear(input[0], weight_))}, {}, {}};
  }
};

struct FailingModel final : SequentialModel {
  FailingModel(PluginContext&, const SmallOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<FailingLayer>("hidden", width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

// Notes how often groups had been stopped when each of its regions was freed.
std::vector<int> stops_at_free;
class WatchedMemory final : public FarMemory {
 public:
  using FarMemory::FarMemory;
  void free(Region region) override {
    stops_at_free.push_back(CountingProvider::stops);
    FarMemory::free(region);
  }
};

struct TrainedInTiers {
  std::vector<double> losses, norms;
  std::map<std::string, std::map<std::int64_t, at::Tensor>> masters;  // by rank and parameter: pieces by their begin
  std::map<int, Ledger> ledgers;                                      // by rank
};

std::vector<ProgramPlugin> plugins_of_tiers() {
  return {program_plugin<Model, SmallModel, SmallOptions>("small", {Capability::SplittableBackward}),
          program_plugin<OffloadDevice, FarMemory, FarOptions>("far")};
}

std::vector<std::string> with_data(const Config& config, std::vector<std::string> settings) {
  settings.insert(settings.begin(), {config.data(), "train.global_batch=12", "train.micro_batch=2",
                                     "train.accumulation=auto", "train.clip=0.5", "learning_rate.base=0.1"});
  return settings;
}

TrainedInTiers trained_in_tiers(const Config& config, int ranks, const std::vector<std::string>& settings) {
  TrainedInTiers result;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), with_data(config, settings),
      [&](const LocalRank& rank) {
        std::vector<double> losses, norms;
        for (int step = 0; step < 3; ++step) {
          const StepResult made = rank.engine.train_batch(rank.engine.batches());
          losses.push_back(made.loss);
          norms.push_back(made.gradient_norm);
          if (step == 0) rank.run.session().store().reset_peaks();  // the first step makes the slots
        }
        const stage::Stage& stage = rank.run.session().stage();
        const Ledger ledger = rank.run.session().store().ledger();
        rank.run.session().make_pending_updates();
        const std::lock_guard lock(mutex);
        result.losses = losses;
        result.norms = norms;
        result.ledgers[rank.engine.rank()] = ledger;
        for (const auto& entry : stage.updates.state().entries())
          stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& master) {
            result.masters[std::to_string(rank.engine.rank()) + ": " + entry.piece.info.parameter]
                          [entry.piece.info.begin] = master.flatten().clone();
          });
      },
      plugins_of_tiers());
  return result;
}

// The pieces one after the other: another number of elements at a time cuts others.
at::Tensor joined(const std::map<std::int64_t, at::Tensor>& pieces) {
  std::vector<at::Tensor> parts;
  for (const auto& [begin, piece] : pieces) parts.push_back(piece);
  return at::cat(parts);
}

// Empty where every bit is the same.
std::string first_difference(const TrainedInTiers& far, const TrainedInTiers& here) {
  First first;
  first.expect(at::tensor(far.losses), at::tensor(here.losses), 0, 2, "losses by step");
  first.expect(at::tensor(far.norms), at::tensor(here.norms), 0, 2, "gradient norms by step");
  for (const auto& [name, pieces] : here.masters)
    first.expect(far.masters.contains(name) ? joined(far.masters.at(name)) : at::empty({0}), joined(pieces), 0, 2,
                 "master weights of rank " + name);
  return first.text();
}

// The dry run counts what each rank took.
void check_plan(const Config& config, int ranks, const std::vector<std::string>& settings,
                const std::map<int, Ledger>& ledgers) {
  for (const auto& [rank, ledger] : ledgers) {
    const resolve::ResolvedRun resolved = read_program_config(nullptr, config.file(), with_data(config, settings),
                                                              plugins_of_tiers(), {ranks, "the test"});
    const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
    CHECK(planned.peak == ledger.peak);
    CHECK(planned.total_peak == ledger.total_peak);
  }
}

std::int64_t held(const Ledger& ledger, Category category, Tier tier) {
  return ledger.now[static_cast<std::size_t>(category)][static_cast<std::size_t>(tier)];
}

}  // namespace

TEST_CASE("offloaded parameters, gradients and optimizer state change no bit") {
  const Config config;
  const auto works = [](const std::string& scheduler, int ranks, auto&&...) {
    return scheduler == "1f1b" || ranks % 2 == 0;
  };
  for (const auto& [scheduler, ranks, partitioner, optimizer, precision, policy] :
       every_pair_that(works, Names{"1f1b", "zero_bubble_h1", "zero_bubble_v"}, std::vector{1, 2, 3, 4},
                       Names{"ddp", "zero3"}, Names{"sgd", "adamw", "adafactor", "muon", "schedule_free"},
                       Names{"fp32", "bf16"}, Names{"plain", "delayed"})) {
    std::vector<std::string> settings{"model.plugin=small",
                                      "partitioner.plugin=" + partitioner,
                                      "optimizer.plugin=" + optimizer,
                                      "precision.plugin=" + precision,
                                      "scheduler.plugin=" + scheduler,
                                      "step_policy=" + policy};
    if (ranks % 2 == 0) settings.push_back("parallel.pipeline=2");
    CAPTURE(settings, ranks);
    const TrainedInTiers here = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, here.ledgers);
    settings.push_back("offload.optimizer.plugin=far");
    if (partitioner == "zero3") settings.push_back("offload.parameters.plugin=far");
    const TrainedInTiers far = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, far.ledgers);
    CHECK(first_difference(far, here) == "");
    for (const auto& [rank, ledger] : far.ledgers) {
      CHECK(held(ledger, Category::Gradient, Tier::Disk) > 0);
      CHECK(held(ledger, Category::Optimizer, Tier::Disk) > 0);
      // The sums of adafactor are the step's, and stay.
      CHECK((held(ledger, Category::Optimizer, Tier::Device) > 0) == (optimizer == "adafactor"));
      CHECK((held(ledger, Category::Parameter, Tier::Disk) > 0) == (partitioner == "zero3"));
    }
  }
}

TEST_CASE("offloaded inputs of recomputed layers change no bit") {
  const Config config;
  const auto works = [](const std::string& scheduler, int ranks, auto&&...) {
    if (scheduler == "dualpipe_v" && ranks == 4) return false;  // 3 micro-batches are too few
    return scheduler == "1f1b" || scheduler == "gpipe" || ranks > 1;
  };
  for (const auto& [scheduler, ranks, layers, frozen, all_else, ratio] : every_pair_that(
           works, Names{"1f1b", "gpipe", "l2l", "interleaved_1f1b", "zero_bubble_h1", "zero_bubble_v", "dualpipe_v"},
           std::vector{1, 2, 4}, Names{"all", "[1, 3]"}, Names{"", "*embedding*", "hidden.*"}, std::vector{false, true},
           Names{"0", "0.3", "1"})) {
    std::vector<std::string> settings{"model.plugin=small", "partitioner.plugin=zero3", "precision.plugin=bf16",
                                      "scheduler.plugin=" + scheduler, "activations.checkpoint=" + layers};
    if (ranks > 1) settings.push_back("parallel.pipeline=2");
    if (!frozen.empty()) settings.push_back("parameters=[{match: [\"" + frozen + "\"], trainable: false}]");
    CAPTURE(settings, ranks);
    const TrainedInTiers here = trained_in_tiers(config, ranks, settings);
    settings.push_back("offload.activations.plugin=far");
    if (all_else) settings.insert(settings.end(), {"offload.parameters.plugin=far", "offload.optimizer.plugin=far"});
    const bool ahead = ratio == "0.3" || (ratio == "1" && all_else);
    settings.insert(settings.end(), {std::string("offload.read_ahead=") + (ahead ? "1KiB" : "0"),
                                     "offload.activations_ratio=" + ratio});
    const TrainedInTiers far = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, far.ledgers);
    CHECK(first_difference(far, here) == "");
    std::int64_t away = 0;
    for (const auto& [rank, ledger] : far.ledgers) away += held(ledger, Category::Activation, Tier::Disk);
    if (ratio == "0") CHECK(away == 0);
    if (ratio == "1" && frozen.empty()) CHECK(away > 0);
  }
}

TEST_CASE("parts of parameters and optimizer state are offloaded by whole layers") {
  const Config config;
  for (const auto& [ratio, parameters, ranks, policy, precision] :
       every_pair(Names{"0", "0.3", "0.5", "1"}, std::vector{false, true}, std::vector{1, 3}, Names{"plain", "delayed"},
                  Names{"fp32", "bf16"})) {
    std::vector<std::string> settings{"model.plugin=small", "partitioner.plugin=zero3", "precision.plugin=" + precision,
                                      "step_policy=" + policy};
    const TrainedInTiers here = trained_in_tiers(config, ranks, settings);
    settings.insert(settings.end(), {"offload.optimizer.plugin=far", "offload.optimizer_ratio=" + ratio});
    if (parameters)
      settings.insert(settings.end(), {"offload.parameters.plugin=far",
                                       "offload.parameters_ratio=" + std::string(ratio == "1" ? "0.4" : ratio)});
    CAPTURE(settings, ranks);
    const TrainedInTiers far = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, far.ledgers);
    CHECK(first_difference(far, here) == "");
    for (const auto& [rank, ledger] : far.ledgers) {
      const auto there = [&](Category category) { return held(ledger, category, Tier::Disk); };
      CHECK((there(Category::Optimizer) > 0) == (ratio != "0"));
      CHECK((there(Category::Gradient) > 0) == (ratio != "0"));
      CHECK((held(ledger, Category::Optimizer, Tier::Device) > 0) == (ratio != "1"));
      CHECK((there(Category::Parameter) > 0) == (parameters && ratio != "0"));
    }
  }
}

TEST_CASE("partly resident gradients and partly deferred updates change no bit") {
  const Config config;
  const auto is_not_refused = [](const std::string& policy, const std::string& at_end, auto&&...) {
    return policy == "plain" || at_end == "0";
  };
  for (const auto& [policy, at_end, ratio, ahead, optimizer, ranks] :
       every_pair_that(is_not_refused, Names{"plain", "delayed"}, Names{"0", "0.5", "1"}, Names{"0", "0.5", "1"},
                       Names{"0", "1KiB"}, Names{"adamw", "adafactor"}, std::vector{1, 3})) {
    std::vector<std::string> settings{"model.plugin=small", "partitioner.plugin=zero3", "precision.plugin=bf16",
                                      "optimizer.plugin=" + optimizer, "step_policy=" + policy};
    const TrainedInTiers here = trained_in_tiers(config, ranks, settings);
    settings.insert(settings.end(), {"offload.optimizer.plugin=far", "offload.gradients_ratio=" + ratio,
                                     "offload.updates_at_end=" + at_end, "offload.read_ahead=" + ahead});
    CAPTURE(settings, ranks);
    const TrainedInTiers far = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, far.ledgers);
    CHECK(first_difference(far, here) == "");
    for (const auto& [rank, ledger] : far.ledgers) {
      CHECK((held(ledger, Category::Gradient, Tier::Disk) > 0) == (ratio != "0"));
      // The sums that adafactor's pieces share are no state: they stay.
      if (optimizer == "adamw") CHECK(held(ledger, Category::Optimizer, Tier::Device) == 0);
    }
  }
}

TEST_CASE("the sizes of updates and prefetches change no bit and are planned") {
  const Config config;
  for (const auto& [elements, optimizer, ahead, ranks, policy] :
       every_pair(Names{"1", "7", "100", "1000000"}, Names{"adamw", "adafactor", "muon", "schedule_free"},
                  Names{"0", "200", "1MiB"}, std::vector{1, 3}, Names{"plain", "delayed"})) {
    std::vector<std::string> settings{"model.plugin=small", "partitioner.plugin=zero3", "precision.plugin=bf16",
                                      "optimizer.plugin=" + optimizer, "step_policy=" + policy};
    const TrainedInTiers here = trained_in_tiers(config, ranks, settings);
    settings.insert(settings.end(), {"offload.optimizer.plugin=far", "offload.parameters.plugin=far",
                                     "offload.update_elements=" + elements, "offload.read_ahead=" + ahead});
    CAPTURE(settings, ranks);
    const TrainedInTiers far = trained_in_tiers(config, ranks, settings);
    check_plan(config, ranks, settings, far.ledgers);
    CHECK(first_difference(far, here) == "");
  }
}

TEST_CASE("parameters rest elsewhere only under a partitioner that releases them") {
  const Config config;
  CHECK_THROWS_WITH(
      trained_in_tiers(config, 1, {"model.plugin=small", "partitioner.plugin=ddp", "offload.parameters.plugin=far"}),
      Catch::Contains("offload.parameters") && Catch::Contains("partitioner/ddp") &&
          Catch::Contains("releases_parameters"));
}

TEST_CASE("a rank stops its groups before freeing memory only after an error") {
  const Config config;
  const bool fails = GENERATE(false, true), caught = GENERATE(false, true);
  stops_at_free.clear();
  const int before = CountingProvider::stops;
  const auto run = [&] {
    on_engines(1, config.file(), with_data(config, {"model.plugin=failing", "offload.optimizer.plugin=watched"}),
               [&](const LocalRank& rank) {
                 rank.engine.train_batch(rank.engine.batches());
                 layer_fails = fails && caught;
                 if (layer_fails) CHECK_THROWS_AS(rank.engine.train_batch(rank.engine.batches()), UserError);
                 layer_fails = false;
                 if (fails && !caught) throw UserError("the test's");
               },
               {program_plugin<Model, FailingModel, SmallOptions>("failing"),
                program_plugin<OffloadDevice, WatchedMemory, FarOptions>("watched")});
  };
  if (fails && !caught)
    CHECK_THROWS_AS(run(), UserError);
  else
    run();
  REQUIRE_FALSE(stops_at_free.empty());
  for (const int stops : stops_at_free) CHECK((stops > before) == fails);
}
