// Optimizers that update blocks or matrices: the same weights on every layout, whatever shards, moves or waits.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <strata/options.hpp>

#include <map>

#include "checkpoint/ranges.hpp"
#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(HalvesOptions)

// Two ranks, of which each owns half of everything: it knows no units.
class Halves final : public Partitioner {
 public:
  Halves(PluginContext&, const HalvesOptions&) {}
  std::vector<GroupSpec> groups(const MeshShape& mesh) const override {
    return {{"all", {{0, mesh.size(Axis::Data) - 1}}}};
  }
  void attach(PartitionContext& context) override {
    rank_ = context.group("all").rank();
    for (FlatParameter* flat : context.flat_parameters()) {
      const FlatParameterInfo& info = flat->info();
      const auto make = [&](Category category, at::ScalarType dtype) {
        return &context.buffer(
            {.category = category, .flat = flat, .elements = info.elements, .dtype = dtype, .resident = true});
      };
      Buffer* const parameter = make(Category::Parameter, info.dtypes.parameter);
      flat->bind(parameter->tensor());
      const std::int64_t begin = rank_ * info.elements / 2, end = (rank_ + 1) * info.elements / 2;
      slices_.push_back({flat,
                         begin,
                         end,
                         {parameter, begin, end - begin},
                         {make(Category::Gradient, info.dtypes.gradient), begin, end - begin},
                         begin,
                         end});
    }
  }
  Lookahead lookahead() const override { return {.resident = true}; }
  void prefetch(FlatParameter&, Phase) override {}
  void gather(FlatParameter&, Phase) override {}
  void release(FlatParameter&, Phase) override {}
  LentGradient gradient(FlatParameter& flat, Accumulation) override {
    return slices_[static_cast<std::size_t>(flat.info().id)].gradient.buffer->tensor();
  }
  void reduce(FlatParameter&, Accumulation) override {}
  void finish_gradient(FlatParameter&) override {}
  std::vector<Slice> owned() override { return slices_; }
  void publish(FlatParameter&) override {}

 private:
  int rank_ = 0;
  std::vector<Slice> slices_;
};

std::vector<ProgramPlugin> halves() {
  return {program_plugin<Partitioner, Halves, HalvesOptions>("halves")};
}

std::vector<std::string> with_model(const Config& config, const std::string& optimizer, int hidden, int layers,
                                    const std::vector<std::string>& settings) {
  std::vector<std::string> all{config.data(),
                               "model.plugin=gpt_neox",
                               "model.hidden_size=" + std::to_string(hidden),
                               "model.intermediate_size=" + std::to_string(2 * hidden),
                               "model.layers=" + std::to_string(layers),
                               "model.heads=4",
                               "model.vocabulary=101",
                               "train.global_batch=12",
                               "train.accumulation=auto",
                               "train.clip=1",
                               "learning_rate.base=0.01",
                               "optimizer.plugin=" + optimizer};
  all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

struct UnitRun {
  std::map<std::string, at::Tensor> saved;  // by parameter and state
  std::map<int, Ledger> ledgers;            // by rank
};

UnitRun trained_in_units(const Config& config, const std::string& optimizer, int ranks,
                         const std::vector<std::string>& settings, int hidden = 64, int layers = 2,
                         const std::string& from = "", int steps = 3) {
  UnitRun result;
  std::mutex mutex;
  std::string folder;
  const TemporaryFolder kept;
  std::vector<std::string> all = with_model(config, optimizer, hidden, layers, settings);
  all.push_back("checkpoint.path=" + kept.path().string());
  on_engines(
      ranks, config.file(), all,
      [&](const LocalRank& rank) {
        if (!from.empty()) rank.engine.resume(from);
        for (int step = 0; step < steps; ++step) {
          rank.engine.train_batch(rank.engine.batches());
          if (step == 0) rank.run.session().store().reset_peaks();  // the first step makes the slots
        }
        const Ledger ledger = rank.run.session().store().ledger();
        const std::string saved = rank.engine.save_checkpoint();
        const std::lock_guard lock(mutex);
        folder = saved;
        result.ledgers[rank.engine.rank()] = ledger;
      },
      halves());
  const auto saved = checkpoint::TrainingCheckpoint::read(folder);
  const checkpoint::RangeSource source(folder, saved.files, saved.parameters);
  for (const checkpoint::SavedParameter& parameter : saved.parameters)
    for (const std::string& state : source.states(parameter.name)) {
      const std::int64_t elements = source.elements(parameter.name, state);
      at::Tensor& values = result.saved[parameter.name + " " + state];
      values = at::empty({elements}, source.dtype(parameter.name, state));
      source.read(parameter.name, state, 0, elements, values);
    }
  return result;
}

void check_same_bits(const UnitRun& found, const UnitRun& expected) {
  REQUIRE(found.saved.size() == expected.saved.size());
  for (const auto& [name, values] : expected.saved) {
    INFO(name);
    CHECK(at::equal(found.saved.at(name), values));
  }
}

// Of the weights, over the most that one moved.
double distance(const UnitRun& found, const UnitRun& expected, const UnitRun& start) {
  double moved = 0.0, different = 0.0;
  for (const auto& [name, values] : expected.saved) {
    if (!name.ends_with(" master")) continue;
    moved = std::max(moved, (values - start.saved.at(name)).abs().max().item<double>());
    different = std::max(different, (values - found.saved.at(name)).abs().max().item<double>());
  }
  return different / moved;
}

}  // namespace

// One micro-batch a step, so that every partitioner sums in the same order.
std::vector<std::string> at_once(int ranks, std::vector<std::string> settings) {
  settings.push_back("train.micro_batch=" + std::to_string(12 / ranks));
  return settings;
}

TEST_CASE("blocks and matrices get the same bits from every partitioner on as many ranks") {
  const Config config;
  const std::string optimizer = GENERATE("adamw_8bit", "muon"), tied = GENERATE("false", "true");
  for (const int ranks : {2, 3}) {
    const std::string tie = "model.tie_embeddings=" + tied;
    const UnitRun expected =
        trained_in_units(config, optimizer, ranks, at_once(ranks, {"partitioner.plugin=ddp", tie}));
    for (const std::vector<std::string>& partitioner : std::vector<std::vector<std::string>>{
             {"partitioner.plugin=zero1"},
             {"partitioner.plugin=zero2", "partitioner.reduce_bucket_size=1000"},
             {"partitioner.plugin=zero2", "partitioner.reduce_scatter=false"},
             {"partitioner.plugin=zero3"},
             {"partitioner.plugin=zero3", "partitioner.reduce_bucket_size=3000"},
             {"partitioner.plugin=hybrid", "partitioner.shard_size=1"},
             {"partitioner.plugin=hybrid", "partitioner.shard_size=" + std::to_string(ranks),
              "partitioner.secondary_shard=true"}}) {
      CAPTURE(optimizer, partitioner, ranks, tied);
      std::vector<std::string> settings = at_once(ranks, partitioner);
      settings.push_back(tie);
      check_same_bits(trained_in_units(config, optimizer, ranks, settings), expected);
    }
  }
}

TEST_CASE("blocks and matrices get the same weights on any number of ranks and stages") {
  const Config config;
  // Gradients differ by the order of sums, which moves a few elements of a block to the number beside theirs.
  // Muon's steps make much of singular values near 0.
  const auto [optimizer, bound, other] = GENERATE(table<std::string, double, std::string>(
      {{"adamw_8bit", 2e-2, "optimizer.betas=[0.85, 0.999]"}, {"muon", 2e-3, "optimizer.momentum=0.9"}}));
  const std::string one = "model.tie_embeddings=true";
  const UnitRun start = trained_in_units(config, optimizer, 1, {one, "train.micro_batch=12"}, 64, 2, "", 0);
  const UnitRun expected = trained_in_units(config, optimizer, 1, {one, "train.micro_batch=12"});
  for (const auto& [ranks, settings] : std::vector<std::pair<int, std::vector<std::string>>>{
           {3, {"partitioner.plugin=zero2"}},
           {4, {"partitioner.plugin=hybrid", "train.micro_batch=3"}},
           {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
           {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero1", "train.micro_batch=3"}},
           {4, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", "partitioner.plugin=zero3"}}}) {
    CAPTURE(optimizer, settings, ranks);
    std::vector<std::string> all{one, "train.micro_batch=2"};
    all.insert(all.end(), settings.begin(), settings.end());
    const double found = distance(trained_in_units(config, optimizer, ranks, all), expected, start);
    CAPTURE(found);
    CHECK(found <= bound);
  }
  CHECK(distance(trained_in_units(config, optimizer, 1, {one, "train.micro_batch=12", other}), expected, start) >
        2 * bound);
}

// The vocabulary is odd, and tied; a fused weight of q, k and v is cut in three places.
TEST_CASE("sums over whole parameters are those of one process where tensor-parallel ranks have parts") {
  const Config config;
  const auto [optimizer, bound, other] =
      GENERATE(table<std::string, double, std::string>({{"lamb", 1e-4, "optimizer.epsilon=1.1e-3"},
                                                        {"adam_mini", 1e-4, "optimizer.epsilon=1.1e-3"},
                                                        {"adafactor", 2e-5, "optimizer.d=1.001"}}));
  const std::string model = GENERATE("gpt_neox", "gpt2", "llama");
  std::vector<std::string> one{"model.plugin=" + model, "model.tie_embeddings=true", "model.seq_len=6"};
  // A gradient near 0 is mostly rounding, which depends on the processor; these keep an update from dividing it by
  // itself. Then adafactor is 6e-6 away at most, and 2.8e-5 at least where one row's sum of squares is 1.001 of the
  // right one.
  one.push_back(optimizer == "adafactor" ? "optimizer.eps=[1e-5, 1e-3]" : "optimizer.epsilon=1e-3");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), one.begin(), one.end());
    return more;
  };
  const UnitRun start = trained_in_units(config, optimizer, 1, with({"train.micro_batch=12"}), 64, 2, "", 0);
  const UnitRun expected = trained_in_units(config, optimizer, 1, with({"train.micro_batch=12"}));
  for (const auto& [ranks, settings] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"parallel.tensor=2"}},
           {2, {"parallel.tensor=2", "parallel.sequence=true"}},
           {4, {"parallel.tensor=2", "partitioner.plugin=zero3"}},
           {4, {"parallel.tensor=2", "parallel.pipeline=2", "scheduler.plugin=1f1b"}}}) {
    CAPTURE(optimizer, model, settings, ranks);
    std::vector<std::string> all = settings;
    all.push_back("train.micro_batch=2");
    const double found = distance(trained_in_units(config, optimizer, ranks, with(all)), expected, start);
    CAPTURE(found);
    CHECK(found <= bound);
  }
  CHECK(distance(trained_in_units(config, optimizer, 1, with({"train.micro_batch=12", other})), expected, start) >
        2 * bound);
}

// Weights of q, k and v head by head, one after the other, and apart with fewer heads of k and v; cut by rows, by
// columns.
TEST_CASE("matrices split over tensor-parallel ranks are updated whole") {
  const Config config;
  const std::string model = GENERATE("gpt_neox", "gpt2", "llama");
  std::vector<std::string> one{"model.plugin=" + model, "model.tie_embeddings=true", "model.seq_len=6"};
  if (model == "llama") one.push_back("model.key_value_heads=2");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), one.begin(), one.end());
    return more;
  };
  const UnitRun start = trained_in_units(config, "muon", 1, with({"train.micro_batch=12"}), 64, 2, "", 0);
  const UnitRun expected = trained_in_units(config, "muon", 1, with({"train.micro_batch=12"}));
  constexpr double bound = 2e-3;  // as above
  for (const auto& [ranks, settings] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"parallel.tensor=2"}},
           {2, {"parallel.tensor=2", "parallel.sequence=true", "step_policy=speculative"}},
           {2, {"parallel.tensor=2", "offload.optimizer.plugin=cpu"}},
           {4, {"parallel.tensor=2", "partitioner.plugin=zero3"}},
           {4, {"parallel.tensor=2", "parallel.pipeline=2", "scheduler.plugin=1f1b"}}}) {
    CAPTURE(model, settings, ranks);
    std::vector<std::string> all = settings;
    all.push_back("train.micro_batch=2");
    const double found = distance(trained_in_units(config, "muon", ranks, with(all)), expected, start);
    CAPTURE(found);
    CHECK(found <= bound);
  }
  CHECK(distance(trained_in_units(config, "muon", 1, with({"train.micro_batch=12", "optimizer.momentum=0.9"})),
                 expected, start) > 2 * bound);
  const std::string plain = "optimizer.nesterov=false";
  CHECK(distance(trained_in_units(config, "muon", 2, with({"train.micro_batch=6", "parallel.tensor=2", plain})),
                 trained_in_units(config, "muon", 1, with({"train.micro_batch=12", plain})), start) <= bound);
}

TEST_CASE("state of blocks and matrices elsewhere, later and twice has every bit, and the plan counts it") {
  const Config config;
  const std::string optimizer = GENERATE("adamw_8bit", "muon");
  for (const std::vector<std::string>& policy :
       std::vector<std::vector<std::string>>{{"step_policy=plain"}, {"step_policy=delayed"}}) {
    for (const int ranks : {1, 3}) {
      std::vector<std::string> settings = at_once(ranks, {"partitioner.plugin=zero3", "precision.plugin=bf16"});
      settings.insert(settings.end(), policy.begin(), policy.end());
      const UnitRun here = trained_in_units(config, optimizer, ranks, settings);
      for (const char* const ratio : {"1", "0.5"}) {
        std::vector<std::string> moved = settings;
        moved.insert(moved.end(), {"offload.optimizer.plugin=cpu", std::string("offload.optimizer_ratio=") + ratio});
        CAPTURE(moved, ranks);
        const UnitRun away = trained_in_units(config, optimizer, ranks, moved);
        check_same_bits(away, here);
        for (const auto& [rank, ledger] : away.ledgers) {
          const resolve::ResolvedRun resolved = read_program_config(
              nullptr, config.file(), with_model(config, optimizer, 64, 2, moved), halves(), {ranks, "the test"});
          const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
          CHECK(planned.peak == ledger.peak);
        }
      }
    }
  }
}

TEST_CASE("a checkpoint of blocks is read on any ranks that hold whole blocks") {
  const Config config;
  const std::vector<std::pair<int, std::vector<std::string>>> places{
      {1, {"partitioner.plugin=ddp", "train.micro_batch=12"}},
      {3, {"partitioner.plugin=zero3"}},
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=2", "partitioner.plugin=zero1"}}};
  const TemporaryFolder first;
  for (const auto& [ranks, settings] : places) {
    CAPTURE(ranks, settings);
    std::vector<std::string> all = with_model(config, "adamw_8bit", 512, 1, settings);
    all.push_back("train.micro_batch=2");
    all.push_back("checkpoint.path=" + (first.path() / std::to_string(ranks)).string());
    std::string folder;
    std::mutex mutex;
    on_engines(
        ranks, config.file(), all,
        [&](const LocalRank& rank) {
          rank.engine.train_batch(rank.engine.batches());
          const std::string saved = rank.engine.save_checkpoint();
          const std::lock_guard lock(mutex);
          folder = saved;
        },
        halves());
    const UnitRun expected = trained_in_units(config, "adamw_8bit", ranks, settings, 512, 1, folder, 0);
    CHECK(expected.saved.at("gpt_neox.layers.0.attention.dense.weight exp_avg_scale").numel() == 512 * 512 / 256);
    for (const auto& [others, other] : places)
      check_same_bits(trained_in_units(config, "adamw_8bit", others, other, 512, 1, folder, 0), expected);
  }
}

TEST_CASE("cuts within blocks or matrices are refused, in a plan too") {
  const Config config;
  const auto refused = [&](const std::string& optimizer, int ranks, const std::vector<std::string>& settings) {
    const std::string text = error_of([&] { trained_in_units(config, optimizer, ranks, settings, 64, 1); });
    const resolve::ResolvedRun resolved = read_program_config(
        nullptr, config.file(), with_model(config, optimizer, 64, 1, settings), halves(), {ranks, "the test"});
    CHECK(error_of([&] { plan::dry_run(resolved.config, *resolved.registry, ranks - 1); }) == text);
    return text;
  };
  CHECK_THAT(refused("adamw_8bit", 2, {"parallel.tensor=2", "train.micro_batch=2"}),
             Contains("parallel.tensor is 2, and optimizer/adamw_8bit updates 256 neighbouring elements of "
                      "gpt_neox.embed_in.weight together: no rank would have all elements of such a unit; set "
                      "parallel.tensor: 1, or choose"));
  // The rows of the vocabulary, which are filled up.
  CHECK_THAT(refused("muon", 2, {"parallel.tensor=2", "train.micro_batch=2", "optimizer.matrices='*embed_in*'"}),
             Contains("optimizer/muon updates 6464 neighbouring elements of gpt_neox.embed_in.weight together"));
  CHECK_THAT(refused("muon", 2, {"partitioner.plugin=halves", "train.micro_batch=2"}),
             Contains("optimizer/muon updates") && Contains("together, and partitioner/halves cuts it at element"));
}
