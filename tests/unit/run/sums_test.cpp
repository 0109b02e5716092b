// An optimizer's sums where only one stage's parameters have any.
#include <strata/options.hpp>

#include <atomic>

#include "ranks.hpp"

using namespace strata;

namespace {

std::atomic<int> wrong_sums{0}, updates{0};

STRATA_NO_OPTIONS(CountingOptions)

// Counts the elements of the embedding, and of nothing else.
class Counting final : public Optimizer {
 public:
  Counting(PluginContext&, const CountingOptions&) {}
  std::vector<StateTensor> state(const PieceInfo&) const override { return {}; }
  std::int64_t sums(const PieceInfo& piece, int) const override {
    return piece.parameter == "embedding.weight" ? 1 : 0;
  }
  void measure(const Piece& part, int, const StepScalars&) override {
    part.sums.add_(static_cast<double>(part.info.end - part.info.begin));
  }
  void step(std::span<Piece* const> pieces, int, const StepScalars&) override {
    for (const Piece* const piece : pieces) {
      ++updates;
      if (piece->sums.defined() && piece->sums.item<double>() != vocabulary * width) ++wrong_sums;
      if (piece->sums.defined() != (piece->info.parameter == "embedding.weight")) ++wrong_sums;
    }
  }
};

}  // namespace

TEST_CASE("a stage updates parameters without sums, and the sums of others are whole") {
  const Config config;
  on_engines(
      4, config.file(),
      {config.data(), "optimizer.plugin=counting", "train.global_batch=12", "train.micro_batch=2",
       "train.accumulation=auto", "parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3",
       "model.plugin=sums"},
      [&](const LocalRank& rank) {
        for (int step = 0; step < 3; ++step) rank.engine.train_batch(rank.engine.batches());
      },
      {{PluginKind::Model, "sums", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}},
       program_plugin<Optimizer, Counting, CountingOptions>("counting")});
  CHECK(wrong_sums == 0);
  CHECK(updates > 0);
}
