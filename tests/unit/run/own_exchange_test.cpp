// An optimizer that sends something itself, where ranks share its state: against ranks that each have all of it; what
// the dry run counts of it; and what it cannot be combined with.
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>

#include "plan/dry_run.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

const std::string onebit = "optimizer={plugin: onebit_adam, freeze_step: 2}";
const std::vector<std::string> whole{"partitioner.plugin=ddp"};
const std::vector<std::string> shared{"partitioner={plugin: zero1, reduce_bucket_size: 1000}"};

struct Trained {
  std::vector<double> losses, norms;
  std::vector<bool> applied;
  std::map<std::string, at::Tensor> values;  // the master weights and state of each parameter, whole
  std::map<int, Ledger> ledgers;             // by rank; of the steps after the first
  std::string checkpoint;
  double squares = 0.0;  // of all elements of all ranks' own gradients of the last step
};

std::vector<std::string> settings_of(const Config& config, const std::vector<std::string>& more,
                                     const std::vector<std::string>& partitioner,
                                     const std::string& optimizer = onebit) {
  std::vector<std::string> settings{config.data(),
                                    optimizer,
                                    "model.plugin=gpt2",
                                    "model.hidden_size=24",
                                    "model.layers=2",
                                    "model.heads=6",
                                    "model.vocabulary=101",
                                    "model.tie_embeddings=true",
                                    "train.global_batch=12",
                                    "train.micro_batch=2",
                                    "train.accumulation=auto",
                                    "train.clip=0",
                                    "learning_rate.base=0.01",
                                    "optimizer.epsilon=0.1"};
  settings.insert(settings.end(), more.begin(), more.end());
  settings.insert(settings.end(), partitioner.begin(), partitioner.end());
  return settings;
}

// Up to step `last`; saves into `to`, if it is given.
Trained trained(const Config& config, int ranks, const std::vector<std::string>& settings, int last,
                const std::string& from = "", const std::string& to = "") {
  Trained result;
  std::mutex mutex;
  std::vector<std::string> all = settings;
  all.insert(all.end(), {"train.steps=" + std::to_string(last)});
  if (!to.empty()) all.push_back("checkpoint.path=" + to);
  on_engines(
      ranks, config.file(), all,
      [&](const LocalRank& rank) {
        Trained mine;
        if (!from.empty()) rank.run.resume(from);
        while (rank.run.steps_done() < last) {
          const report::StepRecord made = rank.run.step();
          mine.losses.push_back(made.outcome.loss);
          mine.norms.push_back(made.outcome.gradient_norm);
          mine.applied.push_back(made.applied);
          if (made.step == 0) rank.run.session().store().reset_peaks();  // the first step makes the slots
        }
        const std::string saved = to.empty() ? "" : rank.engine.save_checkpoint();
        const stage::Stage& stage = rank.run.session().stage();
        const std::lock_guard lock(mutex);
        result.losses = mine.losses;
        result.norms = mine.norms;
        result.applied = mine.applied;
        result.checkpoint = saved;
        result.ledgers[rank.engine.rank()] = stage.memory.store().ledger();
        if (stage.updates.own_gradients() != nullptr)
          for (const auto& flat : stage.values.layout().flat)
            for (const stage::FinalGradient& gradient : stage.updates.own_gradients()->final_gradients(*flat, false))
              result.squares += gradient.all.tensor().to(at::kDouble).square().sum().item<double>();
        for (const state::OptimizerState::Entry& entry : stage.updates.state().entries()) {
          const auto add = [&](const std::string& name, const BufferRange& range) {
            at::Tensor& values = result.values[entry.piece.info.parameter + " " + name];
            if (!values.defined()) values = at::zeros({entry.span->info.elements()});
            entry.for_each_run(range, entry.counted_begin, entry.counted_end,
                               [&](std::int64_t begin, const BufferRange& part) {
                                 values.narrow(0, begin, part.elements).copy_(part.tensor());
                               });
          };
          add("master", entry.master);
          for (std::size_t i = 0; i < entry.state.size(); ++i) add(entry.states[i].name, entry.state[i]);
        }
      },
      {{PluginKind::Model, "unused", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}}});
  return result;
}

void check_values(const Trained& one, const Trained& other) {
  REQUIRE(one.values.size() == other.values.size());
  for (const auto& [name, values] : one.values) {
    CAPTURE(name);
    CHECK(at::equal(values, other.values.at(name)));
  }
}

void check_same(const Trained& one, const Trained& other) {
  check_values(one, other);
  CHECK(one.losses == other.losses);
  CHECK(one.applied == other.applied);
  for (std::size_t step = 0; step < one.norms.size(); ++step)
    CHECK((one.norms[step] == other.norms[step] || !one.applied[step]));
}

}  // namespace

TEST_CASE("ranks that share state and send signs equal ranks with all of it") {
  const auto [ranks, more] =
      GENERATE(table<int, std::vector<std::string>>({{1, {}},
                                                     {2, {"precision.plugin=bf16"}},
                                                     {3, {}},
                                                     {4, {"parallel.tensor=2", "parallel.sequence=true"}},
                                                     {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}}}));
  CAPTURE(ranks, more);
  const Config config;
  const auto settings = [&](const std::vector<std::string>& partitioner) {
    return settings_of(config, more, partitioner);
  };
  const Trained reference = trained(config, ranks, settings(whole), 6);
  const Trained found = trained(config, ranks, settings(shared), 6);
  check_same(found, reference);
  for (const auto& [rank, ledger] : found.ledgers) {
    CAPTURE(rank);
    const resolve::ResolvedRun resolved =
        read_program_config(nullptr, config.file(), settings(shared), {}, {ranks, "the test"});
    const Ledger planned = plan::dry_run(resolved.config, *resolved.registry, rank).ledger;
    CHECK(planned.peak == ledger.peak);
    CHECK(planned.total_peak == ledger.total_peak);
  }
  const std::string half = trained(config, ranks, settings(shared), 4, "", config / "half").checkpoint;
  for (const std::vector<std::string>& partitioner : {whole, shared})
    check_values(trained(config, ranks, settings(partitioner), 6, half), reference);
}

TEST_CASE("the norm of gradients that ranks keep counts each of them once") {
  const Config config;
  constexpr int last = 3;  // the first update after the warm-up
  const auto norm_of = [&](int ranks, const std::vector<std::string>& more,
                           const std::vector<std::string>& partitioner) {
    return trained(config, ranks, settings_of(config, more, partitioner), last);
  };
  const Trained two = norm_of(2, {}, whole);
  CHECK(two.norms.back() == Approx(std::sqrt(two.squares)).epsilon(1e-6));
  CHECK(norm_of(2, {}, shared).norms.back() == Approx(two.norms.back()).epsilon(1e-6));
  // Tensor-parallel ranks have equal gradients of what is not cut, and two stages have equal ones of a tied embedding.
  for (const std::vector<std::string>& cut :
       std::vector<std::vector<std::string>>{{"parallel.tensor=2"},
                                             {"parallel.tensor=2", "parallel.sequence=true"},
                                             {"parallel.pipeline=2", "scheduler.plugin=1f1b"}}) {
    CAPTURE(cut);
    CHECK(norm_of(4, cut, whole).norms.back() == Approx(two.norms.back()).epsilon(1e-5));
  }
}

TEST_CASE("skipped updates leave the messages of ranks that share state unchanged") {
  const Config config;
  const std::vector<std::string> fp16{"precision.plugin=fp16", "precision.fp16.initial_scale_power=14",
                                      "precision.fp16.hysteresis=1", "precision.fp16.loss_scale_window=2"};
  const Trained reference = trained(config, 2, settings_of(config, fp16, whole), 24);
  check_same(trained(config, 2, settings_of(config, fp16, shared), 24), reference);
  const auto skipped = std::ranges::find(reference.applied.begin() + 3, reference.applied.end(), false);
  CHECK(skipped != reference.applied.end());
}

TEST_CASE("a partitioner with too small a share for an exchanging optimizer is refused") {
  const Config config;
  const int ranks = GENERATE(1, 2);
  const auto said = [&](const std::string& optimizer, const std::string& partitioner) {
    return error_of<UserError>([&] {
      trained(config, ranks, settings_of(config, {}, {"partitioner=" + partitioner}, "optimizer=" + optimizer), 1);
    });
  };
  for (const std::string name : {"zero2", "zero3", "hybrid"}) {
    CAPTURE(name);
    CHECK_THAT(said("onebit_adam", "{plugin: " + name + (name == "hybrid" ? ", shard_size: 1}" : "}")),
               Contains("partitioner/" + name +
                        " cannot leave gradients unreduced, and optimizer/onebit_adam does its own communication: each "
                        "rank needs its own, unreduced gradient of all elements; choose a partitioner that can leave "
                        "gradients unreduced, or choose another optimizer"));
  }
  CHECK_THAT(said("onebit_adam", "{plugin: zero2, gradient_reduction: last_micro_batch}"),
             Contains("cannot leave gradients unreduced"));
  CHECK_THAT(said("zero_one_adam", "zero1"),
             Contains("partitioner/zero1 shards optimizer state, and optimizer/zero_one_adam does its own "
                      "communication: each rank trains at its own weights and needs all elements; choose a partitioner "
                      "in which every rank owns every element"));
}
