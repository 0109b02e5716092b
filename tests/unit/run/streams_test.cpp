// Whole runs on a device whose streams run at the same time: every partitioner of the tree, with each of its options,
// with every home of every category of state, for groups of one rank and of two. Whatever one stream writes and another
// reads is ordered by an event or by the wait for an operation.
#include <strata/fakes/ordered_device.hpp>
#include <strata/options.hpp>

#include <map>
#include <utility>

#include "every_pair.hpp"
#include "far_memory.hpp"
#include "program.hpp"
#include "ranks_in_threads.hpp"
#include "run/implementation.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(NoOptions)

struct Streams final : fakes::OrderedDevice {
  Streams(PluginContext&, const NoOptions&) {}
};

// A disk: the host reads and writes the memory that the device copies from and to.
class Disk final : public FarMemory {
 public:
  Disk(PluginContext& context, const NoOptions&) : FarMemory(context, {}) {}
  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override {
    host_.reads(source);
    return FarMemory::write(region, at, source);
  }
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override {
    host_.writes(target);
    return FarMemory::read(region, at, target);
  }

 private:
  fakes::HostAccesses host_;
};

// By operators, which the device sees.
class Descent final : public Optimizer {
 public:
  Descent(PluginContext&, const NoOptions&) {}
  std::vector<StateTensor> state(const PieceInfo&) const override { return {{"sum"}}; }
  void step(std::span<Piece* const> pieces, int, const StepScalars& scalars) override {
    for (Piece* const piece : pieces) {
      piece->state[0].add_(piece->gradient * scalars.gradient_factor);
      piece->master.sub_(piece->state[0] * scalars.apply * scalars.learning_rate);
      if (piece->parameter.defined()) piece->parameter.copy_(piece->master);
    }
  }
};

struct SmallModel final : SequentialModel {
  SmallModel(PluginContext&, const NoOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", 16 * ::vocabulary, width);  // of which a batch touches few rows
    for (const char* const name : {"hidden", "hidden2", "hidden3"}) add<HiddenLayer>(name, width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

class OrderedProvider final : public LocalProvider {
 public:
  using LocalProvider::LocalProvider;
  std::unique_ptr<CheckedGroup> make(const group::GroupRequest& request) override {
    return std::make_unique<fakes::OrderedGroup>(LocalProvider::make(request));
  }
};

struct Outcome {
  std::string refused;
  std::vector<std::string> races;  // of all ranks
  std::vector<double> losses;
  std::int64_t accesses = 0;
};

// Three steps of ranks that are threads.
Outcome train(const Config& config, int ranks, std::vector<std::string> settings) {
  settings.insert(settings.begin(), {config.data(), "device.plugin=streams", "model.plugin=small",
                                     "optimizer.plugin=descent", "communicator.plugin=gloo", "train.global_batch=12",
                                     "train.micro_batch=2", "train.accumulation=auto", "train.clip=0.5"});
  Outcome outcome;
  LocalGroups groups;
  std::mutex mutex;
  try {
    std::vector<resolve::ResolvedRun> programs;
    for (int rank = 0; rank < ranks; ++rank)
      programs.push_back(read_program_config(
          nullptr, config.file(), settings,
          {program_plugin<Device, Streams, NoOptions>("streams"), program_plugin<Model, SmallModel, NoOptions>("small"),
           program_plugin<Optimizer, Descent, NoOptions>("descent"),
           program_plugin<OffloadDevice, Disk, NoOptions>("disk")},
          {ranks, "the test"}));
    load_plugins(programs[0]);
    in_threads(ranks, [&](int rank) {
      auto implementation = std::make_unique<Engine::Implementation>(
          std::move(programs[static_cast<std::size_t>(rank)]), stage::RankNumbers{rank, ranks, rank},
          [&](const config::RunConfig&, const plugins::PluginRegistry&, stage::PluginSet&) {
            return std::make_unique<OrderedProvider>(groups, rank);
          });
      run::Run& run = implementation->run;
      Engine engine(std::move(implementation));
      std::vector<double> losses;
      for (int step = 0; step < 3; ++step) losses.push_back(engine.train_batch(engine.batches()).loss);
      const auto& device = dynamic_cast<const Streams&>(*run.session().stage().plugins.device.plugin);
      const std::lock_guard lock(mutex);
      for (const std::string& race : device.races()) outcome.races.push_back(race);
      outcome.accesses += device.accesses();
      outcome.losses = losses;
    });
  } catch (const UserError& error) {
    outcome.refused = error.what();
  }
  return outcome;
}

struct Variant {
  std::string partitioner;
  std::vector<std::string> options;  // KEY=VALUE
};

// Every partitioner of the tree, by itself and with each value of an option that is one of few.
std::vector<Variant> variants() {
  plugins::PluginRegistry registry(plugins::search_folders(""));
  std::vector<Variant> all;
  for (const plugins::FoundPlugin* const plugin : registry.list()) {
    if (plugin->manifest.kind != PluginKind::Partitioner || !plugin->shadowed_by.empty()) continue;
    const std::string name = plugin->manifest.name;
    all.push_back({name, {}});
    for (const OptionSpec& option : plugin->manifest.options) {
      std::vector<std::string> values = option.choices;
      if (option.type == "boolean") values = {option.default_text == "true" ? "false" : "true"};
      if (option.name == "shard_size") values = {"1", "2"};
      for (const std::string& value : values)
        if (value != option.default_text)
          all.push_back({name, {"partitioner." + name + "." + option.name + "=" + value}});
    }
  }
  return all;
}

// Races are failures.
Outcome run_of(const Config& config, const Variant& variant, const std::string& moves, const std::string& home,
               const std::string& layout, const std::string& precision, const std::string& policy) {
  std::vector<std::string> settings{"partitioner.plugin=" + variant.partitioner, "precision.plugin=" + precision,
                                    "step_policy=" + policy, "activations.checkpoint=all"};
  settings.insert(settings.end(), variant.options.begin(), variant.options.end());
  for (const std::string key : {"parameters", "optimizer", "activations"})
    if (moves.find(key) != std::string::npos) settings.push_back("offload." + key + ".plugin=" + home);
  if (!moves.empty() && home == "disk") settings.push_back("offload.read_ahead=1KiB");
  if (layout == "two stages") settings.insert(settings.end(), {"parallel.pipeline=2", "scheduler.plugin=1f1b"});
  if (layout == "two stages of versions")
    settings.insert(settings.end(), {"parallel.pipeline=2", "scheduler.plugin=pipedream", "train.clip=0"});
  if (policy == "local") settings.emplace_back("local.steps=2");
  CAPTURE(settings, layout);
  const Outcome outcome = train(config, layout == "one rank" ? 1 : 2, settings);
  if (!outcome.refused.empty()) return outcome;
  CHECK(outcome.races == std::vector<std::string>{});
  CHECK(outcome.accesses > 100);
  return outcome;
}

// What is refused, or empty.
std::string try_run(const Config& config, const Variant& variant, const std::string& moves, const std::string& home,
                    const std::string& layout, const std::string& precision, const std::string& policy) {
  return run_of(config, variant, moves, home, layout, precision, policy).refused;
}

const Names all_moves{"", "parameters", "optimizer", "activations", "parameters optimizer activations"};

}  // namespace

TEST_CASE("streams neither touch memory being written nor write memory being read") {
  const Config config;
  Names partitioners;
  for (const Variant& variant : variants())
    if (variant.options.empty()) partitioners.push_back(variant.partitioner);
  REQUIRE(partitioners.size() >= 5);
  std::map<std::string, std::string> refused;  // by partitioner; empty: it ran
  for (const auto& [partitioner, moves, home, layout, precision, policy] :
       every_pair(partitioners, all_moves, Names{"cpu", "disk"}, Names{"one rank", "two ranks", "two stages"},
                  Names{"fp32", "bf16"}, Names{"plain", "delayed"})) {
    const std::string said = try_run(config, {partitioner, {}}, moves, home, layout, precision, policy);
    const auto [found, first] = refused.emplace(partitioner, said);
    if (said.empty()) found->second = "";
  }
  for (const auto& [partitioner, said] : refused) CHECK(partitioner + ": " + said == partitioner + ": ");
}

TEST_CASE("no step policy and no copy of older weights leaves two streams unordered") {
  const Config config;
  for (const std::string partitioner : {"ddp", "zero1"}) {
    CHECK(try_run(config, {partitioner, {}}, "", "cpu", "two stages of versions", "fp32", "plain") == "");
    CHECK(try_run(config, {partitioner, {}}, "", "cpu", "two ranks", "bf16", "speculative") == "");
  }
  CHECK(try_run(config, {"zero3", {}}, "", "cpu", "two stages", "fp32", "speculative") == "");
  const Variant groups_of_one{"hybrid", {"partitioner.hybrid.shard_size=1"}};
  for (const std::string precision : {"fp32", "bf16"})
    CHECK(try_run(config, groups_of_one, "", "cpu", "two ranks", precision, "local") == "");
}

TEST_CASE("weights sent in 8 bits leave no two streams unordered") {
  const Config config;
  for (const std::string option : {"precision.fp8.gather=fp8", "precision.fp8.scaling=delayed"})
    for (const std::string partitioner : {"zero1", "zero3"})
      CHECK(try_run(config, {partitioner, {option}}, "", "cpu", "two ranks", "fp8", "plain") == "");
}

TEST_CASE("data on a disk come back unchanged") {
  const Config config;
  for (const std::string partitioner : {"zero2", "zero3"}) {
    const auto losses = [&](const std::string& moves) {
      return run_of(config, {partitioner, {}}, moves, "disk", "two ranks", "bf16", "plain").losses;
    };
    const std::vector<double> here = losses("");
    REQUIRE(here.size() == 3);
    CHECK(losses(partitioner == "zero3" ? all_moves.back() : "optimizer activations") == here);
  }
}

TEST_CASE("no value of a partitioner's options leaves two streams unordered", "[.full]") {
  const Config config;
  const std::vector<Variant> all = variants();
  // With whichever state elsewhere the options can be combined with.
  const auto tried = [&](const Variant& variant, const std::string& layout) {
    std::string refused;
    for (const std::string& moves : {all_moves.back(), std::string("optimizer"), std::string()}) {
      refused = try_run(config, variant, moves, "disk", layout, "fp32", "plain");
      if (refused.empty()) break;
    }
    return refused;
  };
  for (const Variant& variant : all) {
    tried(variant, "one rank");
    std::string refused = tried(variant, "two ranks");
    // An option that is refused by itself acts beside another one.
    for (const Variant& other : all) {
      if (refused.empty()) break;
      if (other.partitioner != variant.partitioner || other.options.empty()) continue;
      Variant both = variant;
      both.options.insert(both.options.end(), other.options.begin(), other.options.end());
      refused = tried(both, "two ranks");
    }
    CAPTURE(variant.partitioner, variant.options);
    CHECK(refused == "");
  }
}
