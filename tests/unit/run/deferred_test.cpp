// Where an update brings what it needs from another memory tier, it is made in the next step: nobody sees a difference.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include <map>

#include "every_pair.hpp"
#include "far_memory.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

constexpr int deferred_steps = 6;

struct TrainedLate {
  std::vector<double> losses, norms, evaluated;
  std::map<std::string, at::Tensor> masters;  // by rank and parameter
  bool deferred = false;
};

std::vector<std::string> settings_of_late(const Config& config, const std::string& checkpoints,
                                          std::vector<std::string> more) {
  more.insert(more.begin(), {config.data(), "train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto",
                             "train.clip=0.1", "learning_rate.base=0.1", "learning_rate.warmup=3", "train.steps=6",
                             "checkpoint.path=" + checkpoints});
  return more;
}

// Evaluates after every `evaluates` steps, and saves after two; goes on from a checkpoint where there is one.
TrainedLate trained_late(const Config& config, int ranks, const std::string& checkpoints,
                         const std::vector<std::string>& more, int evaluates, int until, bool resumes) {
  TrainedLate result;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), settings_of_late(config, checkpoints, more),
      [&](const LocalRank& rank) {
        if (resumes) rank.engine.resume("latest");
        std::vector<double> losses, norms, evaluated;
        while (rank.engine.steps_done() < until) {
          const StepResult made = rank.engine.train_batch(rank.engine.batches());
          losses.push_back(made.loss);
          norms.push_back(made.gradient_norm);
          if (evaluates > 0 && rank.engine.steps_done() % evaluates == 0)
            evaluated.push_back(rank.engine.evaluate({random_batch(7)}));
          if (rank.engine.steps_done() == 2 && until == 2) rank.engine.save_checkpoint();
        }
        step::Session& session = rank.run.session();
        const bool deferred = std::ranges::any_of(session.program(), &program::Instruction::late);
        session.make_pending_updates();
        const std::lock_guard lock(mutex);
        result.deferred = deferred;
        result.losses = losses;
        result.norms = norms;
        result.evaluated = evaluated;
        const stage::Stage& stage = session.stage();
        for (const auto& entry : stage.updates.state().entries())
          stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& master) {
            // Of several parts, in their order.
            at::Tensor& own = result.masters[std::to_string(rank.engine.rank()) + ": " + entry.piece.info.parameter];
            own = own.defined() ? at::cat({own, master}) : master.clone();
          });
      },
      {program_plugin<OffloadDevice, FarMemory, FarOptions>("far"),
       {PluginKind::Model, "small", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}}});
  return result;
}

void check_same_late(const TrainedLate& one, const TrainedLate& other) {
  CHECK(one.losses == other.losses);
  CHECK(one.norms == other.norms);
  CHECK(one.evaluated == other.evaluated);
  REQUIRE(one.masters.size() == other.masters.size());
  for (const auto& [name, master] : one.masters) {
    CAPTURE(name);
    CHECK(at::equal(master, other.masters.at(name)));
  }
}

}  // namespace

TEST_CASE("deferred updates are made before their results are read") {
  const Config config;
  for (const auto& [partitioner, precision, ranks, evaluates, optimizer] :
       every_pair(Names{"ddp", "zero1", "zero3"}, Names{"fp32", "bf16", "fp16"}, std::vector{1, 2, 3},
                  std::vector{0, 1, 2}, Names{"adamw", "adafactor"})) {
    const std::vector<std::string> here{"model.plugin=small", "partitioner.plugin=" + partitioner,
                                        "optimizer.plugin=" + optimizer, "precision.plugin=" + precision};
    std::vector<std::string> away = here;
    away.insert(away.end(), {"offload.optimizer.plugin=far", "offload.read_ahead=200", "offload.update_elements=50"});
    if (partitioner == "zero3") away.push_back("offload.parameters.plugin=far");
    CAPTURE(away, ranks, evaluates);
    const TrainedLate plain = trained_late(config, ranks, config / "none", here, evaluates, deferred_steps, false);
    const TrainedLate deferred = trained_late(config, ranks, config / "none", away, evaluates, deferred_steps, false);
    CHECK_FALSE(plain.deferred);
    CHECK(deferred.deferred);
    check_same_late(plain, deferred);
  }
}

TEST_CASE("a checkpoint of a run with deferred updates is that of a run without") {
  const Config config;
  const std::vector<std::string> here{"model.plugin=small", "partitioner.plugin=zero3", "precision.plugin=bf16"};
  std::vector<std::string> away = here;
  away.insert(away.end(), {"offload.optimizer.plugin=far", "offload.parameters.plugin=far", "offload.read_ahead=200",
                           "offload.update_elements=50"});
  const bool first_away = GENERATE(false, true), then_away = GENERATE(false, true);
  CAPTURE(first_away, then_away);
  const TrainedLate whole = trained_late(config, 2, config / "none", here, 0, deferred_steps, false);
  trained_late(config, 2, config / "saved", first_away ? away : here, 0, 2, false);
  const TrainedLate rest = trained_late(config, 2, config / "saved", then_away ? away : here, 0, deferred_steps, true);
  CHECK(rest.losses == std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  for (const auto& [name, master] : whole.masters) {
    CAPTURE(name);
    CHECK(at::equal(master, rest.masters.at(name)));
  }
}
