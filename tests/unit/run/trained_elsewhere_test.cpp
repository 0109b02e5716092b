// An optimizer that trains at other weights than the master weights: evaluations and exports have the master weights,
// and the training goes on as though there had been none.
#include <ATen/ops/equal.h>

#include <map>

#include "far_memory.hpp"
#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace trained_elsewhere_test {
namespace {

struct Trained {
  std::vector<double> losses, evaluated;
  std::vector<at::Tensor> logits;
  std::map<std::string, at::Tensor> saved;  // by rank, parameter and state
  std::map<int, Ledger> ledgers;            // by rank
};

struct What {
  bool evaluates = false;  // after each step
  int until = 4;
  std::string resumes = {}, saves = {}, exports = {};
};

std::vector<ProgramPlugin> far() {
  return {program_plugin<OffloadDevice, FarMemory, FarOptions>("far")};
}

std::vector<std::string> with_model(const Config& config, const std::vector<std::string>& more) {
  std::vector<std::string> settings{config.data(),
                                    "model.plugin=gpt_neox",
                                    "model.hidden_size=16",
                                    "model.intermediate_size=32",
                                    "model.layers=2",
                                    "model.heads=2",
                                    "model.vocabulary=31",
                                    "train.global_batch=12",
                                    "train.accumulation=auto",
                                    "train.clip=0.5",
                                    "train.steps=6",
                                    "learning_rate.plugin=constant",
                                    "learning_rate.base=0.02",
                                    "learning_rate.warmup=2",
                                    "optimizer.plugin=schedule_free",
                                    "optimizer.schedule_free.weight_decay=0.1"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

Batch held_out() {
  Batch batch = random_batch(7);
  return {batch.tokens.remainder(31), batch.targets.remainder(31)};
}

Trained trained(const Config& config, int ranks, std::vector<std::string> settings, const What& what) {
  Trained result;
  std::mutex mutex;
  if (!what.saves.empty()) settings.push_back("checkpoint.path=" + what.saves);
  on_engines(
      ranks, config.file(), with_model(config, settings),
      [&](const LocalRank& rank) {
        Trained mine;
        const auto evaluate = [&] {
          mine.evaluated.push_back(rank.engine.evaluate({held_out()}));
          mine.logits.push_back(rank.engine.next_token_logits({3, 1, 4}));
        };
        if (what.evaluates) evaluate();
        if (!what.resumes.empty()) rank.engine.resume(what.resumes);
        while (rank.engine.steps_done() < what.until) {
          mine.losses.push_back(rank.engine.train_batch(rank.engine.batches()).loss);
          if (mine.losses.size() == 1) rank.run.session().store().reset_peaks();  // the first step makes the slots
          mine.ledgers[rank.engine.rank()] = rank.run.session().store().ledger();
          if (what.evaluates) evaluate();
        }
        if (!what.saves.empty()) rank.engine.save_checkpoint();
        if (!what.exports.empty()) rank.engine.export_weights(what.exports);
        rank.run.session().make_pending_updates();
        const std::lock_guard lock(mutex);
        result.losses = mine.losses;
        result.evaluated = mine.evaluated;
        result.logits = mine.logits;
        result.ledgers.merge(mine.ledgers);
        const stage::Stage& stage = rank.run.session().stage();
        for (const auto& entry : stage.updates.state().entries()) {
          const std::string name = std::to_string(rank.engine.rank()) + ": " + entry.piece.info.parameter + " from " +
                                   std::to_string(entry.piece.info.begin) + " ";
          const auto keep = [&](const std::string& state, const BufferRange& range) {
            stage.values.buffers().with(range, memory::Access::Read,
                                        [&](const at::Tensor& values) { result.saved[name + state] = values.clone(); });
          };
          keep("master", entry.master);
          for (std::size_t i = 0; i < entry.states.size(); ++i) keep(entry.states[i].name, entry.state[i]);
        }
      },
      far());
  return result;
}

void check_same(const Trained& found, const Trained& expected) {
  REQUIRE(found.saved.size() == expected.saved.size());
  for (const auto& [name, values] : expected.saved) {
    INFO(name);
    CHECK(at::equal(found.saved.at(name), values));
  }
}

struct Layout {
  int ranks;
  std::vector<std::string> settings;
};

std::vector<Layout> layouts() {
  return {{1, {}},
          {1, {"precision.plugin=bf16", "offload.optimizer.plugin=far", "offload.update_elements=100"}},
          {2, {"partitioner.plugin=zero1", "precision.plugin=bf16"}},
          {2, {"partitioner.plugin=zero2", "step_policy=delayed"}},
          {2, {"partitioner.plugin=zero3", "precision.plugin=bf16", "precision.bf16.master=bf16"}},
          {2, {"partitioner.plugin=zero3", "offload.optimizer.plugin=far", "offload.parameters.plugin=far"}},
          {2, {"parallel.tensor=2", "precision.plugin=bf16"}},
          {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_v", "step_policy=speculative"}},
          {2, {"parallel.pipeline=2", "scheduler.plugin=pipedream", "train.clip=0"}},
          {4, {"partitioner.plugin=hybrid", "partitioner.hybrid.shard_size=2", "train.global_batch=16"}}};
}

}  // namespace

TEST_CASE("evaluation weights are written after the step's own are sent") {
  const Config config;
  on_engines(
      2, config.file(), with_model(config, {"partitioner.plugin=zero2"}),
      [&](const LocalRank& rank) {
        while (rank.engine.steps_done() < 2) {
          rank.engine.train_batch(rank.engine.batches());
          rank.engine.evaluate({held_out()});
        }
      },
      far(), fakes::Movement::AtWait);
}

TEST_CASE("an evaluation uses the exported averages and leaves the training unchanged") {
  for (const auto& [ranks, settings] : layouts()) {
    const Config config;
    CAPTURE(ranks, settings);
    const std::string folder = config / "exported";
    const Trained plain = trained(config, ranks, settings, {});
    const Trained evaluated = trained(config, ranks, settings, {.evaluates = true, .exports = folder});
    CHECK(evaluated.losses == plain.losses);
    check_same(evaluated, plain);
    std::vector<std::string> of_export = settings;
    of_export.push_back("model.init=" + folder);
    const Trained anew = trained(config, ranks, of_export, {.evaluates = true, .until = 0});
    CHECK(anew.evaluated.front() == evaluated.evaluated.back());
    CHECK(at::equal(anew.logits.front(), evaluated.logits.back()));
    CHECK(evaluated.evaluated.back() != evaluated.evaluated.front());
  }
}

TEST_CASE("a run whose optimizer trains elsewhere resumes bit by bit, also when saved after an evaluation") {
  for (const auto& [ranks, settings] : layouts()) {
    const Config config;
    CAPTURE(ranks, settings);
    const Trained whole = trained(config, ranks, settings, {});
    trained(config, ranks, settings, {.evaluates = true, .until = 2, .saves = config / "saved"});
    for (const bool evaluates : {false, true}) {
      const Trained rest =
          trained(config, ranks, settings, {.evaluates = evaluates, .resumes = config / "saved/step-2"});
      CHECK(rest.losses == std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
      check_same(rest, whole);
    }
  }
}

TEST_CASE("master weights of an optimizer that trains elsewhere are planned memory") {
  const auto held = [](const Ledger& ledger) {
    return ledger.now[static_cast<std::size_t>(Category::Optimizer)][static_cast<std::size_t>(Tier::Device)];
  };
  for (const auto& [ranks, settings] : layouts()) {
    const Config config;
    CAPTURE(ranks, settings);
    const Trained found = trained(config, ranks, settings, {});
    for (const auto& [rank, ledger] : found.ledgers) {
      const resolve::ResolvedRun resolved =
          read_program_config(nullptr, config.file(), with_model(config, settings), far(), {ranks, "the test"});
      const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
      CHECK(planned.peak == ledger.peak);
      CHECK(planned.total_peak == ledger.total_peak);
    }
    if (!settings.empty()) continue;
    std::int64_t elements = 0, pieces = 0;
    for (const auto& [name, values] : found.saved)
      if (name.ends_with(" master")) elements += values.numel(), ++pieces;
    CHECK(held(found.ledgers.at(0)) == 3 * 4 * elements + 2 * 8 * pieces);  // x, v, z - x; lr_max and W
  }
}

}  // namespace trained_elsewhere_test
