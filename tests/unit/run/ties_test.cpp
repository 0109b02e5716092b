// A parameter that two stages hold: each makes its gradient from its own layers, and both keep the same values.
#include <ATen/ops/equal.h>
#include <strata/options.hpp>

#include <map>

#include "ranks.hpp"

using namespace strata;

namespace {

// The embedding, under another name, is the head's weight.
struct TiedEmbedding final : EmbeddingLayer {
  TiedEmbedding(ModelContext& context, std::int64_t tokens, std::int64_t size) : EmbeddingLayer(context, tokens, size) {
    weight_.info.tie = "table";
  }
};
struct TiedHead final : HeadLayer {
  TiedHead(ModelContext& context, std::int64_t tokens, std::int64_t size) : HeadLayer(context, tokens, size) {
    weight_.info.tie = "table";
    weight_.info.initializer = Initializer::ones();  // the first use decides
  }
};

STRATA_NO_OPTIONS(TiedOptions)

struct TiedModel final : SequentialModel {
  TiedModel(PluginContext&, const TiedOptions&) : SequentialModel(::vocabulary) {
    add<TiedEmbedding>("embedding", ::vocabulary, width);
    add<HiddenLayer>("hidden", width, width);
    add<HiddenLayer>("hidden2", width, width);
    add<TiedHead>("head", ::vocabulary, width);
  }
};

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<at::Tensor>>
      masters;  // by parameter: of every rank that owns a part, and its begin
};

at::Tensor master_of(const LocalRank& rank, const state::OptimizerState::Entry& entry) {
  at::Tensor copy;
  rank.run.session().stage().values.buffers().with(entry.master, memory::Access::Read,
                                                   [&](const at::Tensor& master) { copy = master.clone(); });
  return copy;
}

// Four steps; every rank's copy of the table is whole under ddp.
Trained trained(const Config& config, int ranks, std::vector<std::string> settings) {
  settings.insert(settings.begin(), {config.data(), "model.plugin=tied", "train.global_batch=12", "train.micro_batch=2",
                                     "train.accumulation=auto", "train.clip=0.5", "learning_rate.base=0.1"});
  Trained result;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        std::vector<double> losses, norms;
        for (int step = 0; step < 4; ++step) {
          const StepResult made = rank.engine.train_batch(rank.engine.batches());
          losses.push_back(made.loss);
          norms.push_back(made.gradient_norm);
        }
        const std::lock_guard lock(mutex);
        result.losses = losses;
        result.norms = norms;
        for (const auto& entry : rank.run.session().stage().updates.state().entries())
          result.masters[entry.piece.info.parameter + " from " + std::to_string(entry.piece.info.begin)].push_back(
              master_of(rank, entry));
      },
      {program_plugin<Model, TiedModel, TiedOptions>("tied", {Capability::SplittableBackward})});
  return result;
}

void check_equal_copies(const Trained& result, std::size_t copies) {
  std::size_t found = 0;
  for (const auto& [name, masters] : result.masters) {
    for (const at::Tensor& master : masters) CHECK(at::equal(master, masters.front()));
    if (name.starts_with("embedding.weight from ")) found += masters.size();
    CHECK_FALSE(name.starts_with("head.weight"));
  }
  CHECK(found == copies);
}

}  // namespace

TEST_CASE("a parameter shared by two stages trains as in one process, and its copies stay equal bit by bit") {
  const Config config;
  const std::string optimizer = GENERATE("sgd", "adamw", "adafactor", "muon");
  const std::string policy = GENERATE("step_policy=plain", "step_policy=delayed");
  const Trained one = trained(config, 1, {"optimizer.plugin=" + optimizer, policy});
  struct Layout {
    int ranks;
    std::vector<std::string> settings;
    std::size_t copies;  // pieces of the table over all ranks
  };
  for (const Layout& layout : std::vector<Layout>{
           {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}, 2},
           {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", "activations.checkpoint=all"}, 2},
           {3, {"parallel.pipeline=3", "scheduler.plugin=1f1b"}, 2},
           {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_v"}, 1},  // both on one stage
           {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=ddp"}, 4},
           {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3"}, 4}}) {
    std::vector<std::string> settings = layout.settings;
    settings.insert(settings.end(), {"optimizer.plugin=" + optimizer, policy});
    const Trained some = trained(config, layout.ranks, settings);
    CAPTURE(optimizer, policy, layout.ranks, layout.settings);
    for (std::size_t step = 0; step < 4; ++step) {
      CHECK(some.losses[step] == Approx(one.losses[step]).epsilon(2e-6));
      CHECK(some.norms[step] == Approx(one.norms[step]).epsilon(1e-5));
    }
    check_equal_copies(some, layout.copies);
  }
}

TEST_CASE("the first use of a shared parameter names and fills it on every stage") {
  const Config config;
  std::map<int, at::Tensor> table;
  std::mutex mutex;
  on_engines(
      2, config.file(),
      {config.data(), "model.plugin=tied", "train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto",
       "parallel.pipeline=2", "scheduler.plugin=1f1b"},
      [&](const LocalRank& rank) {
        const std::lock_guard lock(mutex);
        for (const auto& entry : rank.run.session().stage().updates.state().entries())
          if (entry.piece.info.parameter == "embedding.weight") {
            table[rank.engine.rank()] = master_of(rank, entry);
            CHECK((entry.counted_begin == entry.counted_end) == (rank.engine.rank() == 1));  // one writes and counts it
          }
      },
      {program_plugin<Model, TiedModel, TiedOptions>("tied")});
  REQUIRE(table.size() == 2);
  CHECK(at::equal(table[0], table[1]));
  CHECK_FALSE(table[0].eq(1.0).any().item<bool>());
}
