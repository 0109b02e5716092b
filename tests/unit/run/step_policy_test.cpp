// `step_policy: delayed`: each step makes the update that the gradient of the step before gives.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/options.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ranks.hpp"
#include "update_by_hand.hpp"

using namespace strata;

namespace {

constexpr const char* delayed = "step_policy=delayed";
constexpr std::array matrices{"embedding.weight", "hidden.weight", "head.weight"};
using Weights = std::map<std::string, at::Tensor>;

// What this rank owns, by parameter and begin: master weights, or the gradient that was kept.
Weights owned(run::Run& run, bool kept = false) {
  const stage::Stage& stage = run.session().stage();
  Weights copies;
  for (const auto& entry : stage.updates.state().entries())
    stage.values.buffers().with(kept ? entry.kept : entry.master, memory::Access::Read, [&](const at::Tensor& values) {
      copies[entry.piece.info.parameter + " from " + std::to_string(entry.piece.info.begin)] = values.clone();
    });
  return copies;
}

bool same(const Weights& one, const Weights& other) {
  return std::ranges::equal(
      one, other, [](const auto& a, const auto& b) { return a.first == b.first && at::equal(a.second, b.second); });
}

double loss_and_gradients(const Weights& weights, const std::vector<Batch>& batches, Weights& gradients) {
  Weights leaves;
  for (const char* const name : matrices) leaves[name] = weights.at(name).detach().requires_grad_();
  at::Tensor sum;
  for (const Batch& batch : batches) {
    const at::Tensor rows = at::embedding(leaves["embedding.weight"], batch.tokens);
    const at::Tensor hidden = rows + at::gelu(at::matmul(rows, leaves["hidden.weight"].t()));
    const at::Tensor logits = at::matmul(hidden, leaves["head.weight"].t()).flatten(0, 1);
    const at::Tensor loss = at::cross_entropy_loss(logits, batch.targets.flatten());
    sum = sum.defined() ? sum + loss : loss;
  }
  const at::Tensor mean = sum / static_cast<double>(batches.size());
  torch::autograd::variable_list inputs;
  for (const char* const name : matrices) inputs.push_back(leaves[name]);
  const auto found = torch::autograd::grad({mean}, inputs);
  for (std::size_t i = 0; i < matrices.size(); ++i) gradients[matrices[i]] = found[i];
  return mean.item<double>();
}

STRATA_NO_OPTIONS(FourLayersOptions)

struct FourLayers final : SequentialModel {
  FourLayers(PluginContext&, const FourLayersOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<HiddenLayer>("hidden", width, width);
    add<HiddenLayer>("hidden2", width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

// Losses and norms of a run; of every rank what it owns in the end.
struct Delayed {
  std::vector<double> losses, norms;
  std::map<int, Weights> masters, kept;
};

// Goes on from `from`, if it names a checkpoint, to `steps`, and saves after `saved`.
Delayed trained_delayed(const Config& config, int ranks, std::vector<std::string> settings, int steps,
                        const std::string& from = "", int saved = 0) {
  settings.insert(settings.begin(),
                  {config.data(), delayed, "model.plugin=four", "train.global_batch=12", "train.micro_batch=2",
                   "train.accumulation=auto", "train.clip=0.1", "learning_rate.base=0.1", "train.steps=8"});
  Delayed result;
  std::mutex mutex;
  on_engines(ranks, config.file(), settings,
             [&](const LocalRank& rank) {
               if (!from.empty()) rank.engine.resume(from);
               std::vector<double> losses, norms;
               while (rank.engine.steps_done() < steps) {
                 const StepResult made = rank.engine.train_batch(rank.engine.batches());
                 losses.push_back(made.loss);
                 norms.push_back(made.gradient_norm);
                 if (rank.engine.steps_done() == saved) rank.engine.save_checkpoint();
               }
               const std::lock_guard lock(mutex);
               result.losses = losses;
               result.norms = norms;
               result.masters[rank.engine.rank()] = owned(rank.run);
               result.kept[rank.engine.rank()] = owned(rank.run, true);
             },
             {program_plugin<Model, FourLayers, FourLayersOptions>("four", {Capability::SplittableBackward})});
  return result;
}

// What every rank owns is this part of what one rank owns, to `bound`.
void check_parts(const std::map<int, Weights>& parts, const Weights& whole, double bound) {
  REQUIRE_FALSE(parts.empty());
  for (const auto& [rank, weights] : parts)
    for (const auto& [name, part] : weights) {
      const std::string::size_type from = name.find(" from ");
      const at::Tensor expected = whole.at(name.substr(0, from) + " from 0");
      const at::Tensor difference = part - expected.narrow(0, std::stol(name.substr(from + 6)), part.numel());
      CAPTURE(rank, name);
      CHECK(difference.abs().max().item<double>() <= bound);
    }
}

}  // namespace

TEST_CASE("a delayed run equals autograd with a late update written by hand") {
  const std::string optimizer = GENERATE("sgd", "adamw");
  const bool in_parts = GENERATE(false, true);
  CAPTURE(optimizer, in_parts);
  const Config config;
  on_engines(1, config.file(),
             {delayed, "optimizer.plugin=" + optimizer, "optimizer.sgd.momentum=0.9",
              "optimizer.adamw.weight_decay=0.1", "train.clip=0.1", "learning_rate.warmup=4"},
             [&](const LocalRank& rank) {
               Weights weights, kept;
               for (const char* const name : matrices)
                 weights[name] = owned(rank.run).at(std::string(name) + " from 0").view({-1, width});
               std::int64_t bytes = 0;
               for (const auto& [name, weight] : weights) bytes += static_cast<std::int64_t>(weight.nbytes());
               CHECK(rank.run.session().store().ledger().now[static_cast<std::size_t>(Category::Gradient)]
                                                            [static_cast<std::size_t>(Tier::Device)] == 2 * bytes);
               std::map<std::string, std::vector<at::Tensor>> state;
               double kept_rate = 0.0;
               for (int step = 0; step < 6; ++step) {
                 CAPTURE(step);
                 const std::vector<Batch> batches = random_batches(static_cast<unsigned>(step));
                 Weights gradients;
                 const double loss = loss_and_gradients(weights, batches, gradients);
                 double norm = 0.0;
                 for (const auto& [name, gradient] : gradients) norm += gradient.square().sum().item<double>();
                 norm = std::sqrt(norm);
                 const StepResult made =
                     in_parts ? step_in_parts(rank.engine, batches) : rank.engine.train_batch(batches);
                 CHECK(made.loss == Approx(loss).epsilon(2e-6));
                 CHECK(made.gradient_norm == Approx(norm).epsilon(1e-5));
                 CHECK(made.clip_factor < 1.0);
                 const Weights before = weights, now = owned(rank.run);
                 for (auto& [name, gradient] : kept)
                   update_by_hand(optimizer, weights[name], gradient, state[name], kept_rate, step);
                 for (auto& [name, gradient] : gradients) kept[name] = gradient * (0.1 / (norm + 1e-6));
                 kept_rate = made.learning_rate;
                 for (const auto& [name, weight] : weights) {
                   const at::Tensor found = now.at(name + " from 0").view({-1, width});
                   CHECK((found - weight).abs().max().item<double>() < 1e-6);
                   CHECK(at::equal(found, before.at(name)) == (step == 0));
                 }
               }
             });
}

TEST_CASE("a delayed run is the same on every layout") {
  const Config config;
  const std::string optimizer = "optimizer.plugin=" + GENERATE(as<std::string>(), "sgd", "adamw", "adafactor");
  // AdamW divides by a gradient's own size, and at least by this: then a gradient that is off by 1e-7 moves an element
  // by at most 1e-5 of the rate, 0.05, in each step.
  constexpr double adamw_bound = 4 * 0.05 * 1e-5;
  std::vector<std::string> of_all{optimizer};
  if (optimizer == "optimizer.plugin=adamw") of_all.emplace_back("optimizer.adamw.epsilon=0.01");
  const Delayed one = trained_delayed(config, 1, of_all, 4);
  for (const char* const partitioner : {"ddp", "zero1", "zero2", "zero3"})
    for (const char* const scheduler : {"sequential", "1f1b", "interleaved_1f1b", "zero_bubble_h1"})
      for (const int ranks : {1, 2, 3, 4}) {
        const bool piped = scheduler != std::string("sequential");
        if (piped ? ranks % 2 != 0 : ranks == 4) continue;                         // 12 samples would not divide
        if (scheduler == std::string("interleaved_1f1b") && ranks == 4) continue;  // nor 3 micro-batches
        std::vector<std::string> settings = of_all;
        settings.insert(settings.end(), {"partitioner.plugin=" + std::string(partitioner),
                                         "scheduler.plugin=" + std::string(scheduler)});
        if (piped) settings.emplace_back("parallel.pipeline=2");
        if (scheduler == std::string("interleaved_1f1b")) settings.emplace_back("parallel.chunks=2");
        CAPTURE(settings, ranks);
        const Delayed some = trained_delayed(config, ranks, settings, 4);
        for (std::size_t step = 0; step < 4; ++step) {
          CHECK(some.losses[step] == Approx(one.losses[step]).epsilon(2e-6));
          CHECK(some.norms[step] == Approx(one.norms[step]).epsilon(1e-5));
        }
        if (optimizer == "optimizer.plugin=sgd") check_parts(some.masters, one.masters.at(0), 1e-6);
        if (optimizer == "optimizer.plugin=adamw") check_parts(some.masters, one.masters.at(0), adamw_bound);
      }
}

TEST_CASE("a delayed run resumes bit by bit, on other ranks too") {
  const Config config;
  const std::string partitioner = "partitioner.plugin=" + GENERATE(as<std::string>(), "ddp", "zero3");
  const std::string optimizer = "optimizer.plugin=" + GENERATE(as<std::string>(), "adamw", "adafactor");
  const int ranks = GENERATE(1, 2);
  std::vector<std::string> settings{partitioner, optimizer, "checkpoint.path=" + (config / "saved")};
  if (optimizer == "optimizer.plugin=adamw")
    settings.insert(settings.end(),
                    {"learning_rate.plugin=one_cycle", "learning_rate.one_cycle.cycle_min_lr=0.01",
                     "learning_rate.one_cycle.cycle_first_step_size=3", "learning_rate.one_cycle.cycle_min_mom=0.3",
                     "learning_rate.one_cycle.cycle_momentum=true"});
  CAPTURE(settings, ranks);
  const Delayed whole = trained_delayed(config, ranks, settings, 7, "", 4);
  settings.erase(settings.begin() + 2);
  const std::string saved = config / "saved/step-4";
  const Delayed resumed = trained_delayed(config, ranks, settings, 7, saved);
  CHECK(resumed.losses == std::vector<double>(whole.losses.begin() + 4, whole.losses.end()));
  CHECK(resumed.norms == std::vector<double>(whole.norms.begin() + 4, whole.norms.end()));
  for (const auto& [rank, masters] : whole.masters) {
    CHECK(same(resumed.masters.at(rank), masters));
    CHECK(same(resumed.kept.at(rank), whole.kept.at(rank)));
  }
  const Delayed one = trained_delayed(config, 1, settings, 4, saved);  // loaded, and no more
  CHECK_FALSE(one.kept.at(0).at("head.weight from 0").eq(0.0).all().item<bool>());
  for (const int others : {3, 4}) {
    settings[0] = "partitioner.plugin=zero3";
    if (others == 4) settings.insert(settings.end(), {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1"});
    const Delayed loaded = trained_delayed(config, others, settings, 4, saved);
    check_parts(loaded.masters, one.masters.at(0), 0.0);
    check_parts(loaded.kept, one.kept.at(0), 0.0);
    const Delayed gone_on = trained_delayed(config, others, settings, 7, saved);
    for (std::size_t step = 0; step < 3; ++step)
      CHECK(gone_on.losses[step] == Approx(whole.losses[step + 4]).epsilon(2e-6));
  }
}

TEST_CASE("a checkpoint of a delayed run belongs to delayed runs; one of a plain run has nothing pending") {
  const Config config;
  const std::string path = "checkpoint.path=" + (config / "saved"), plain = "step_policy=plain";
  Engine first = initialize(small_model(), config.file(), {delayed, path});
  for (unsigned step = 0; step < 2; ++step) first.train_batch(random_batches(step));
  const std::string pending = first.save_checkpoint();
  Engine second = initialize(small_model(), config.file(), {plain});
  CHECK_THAT(error_of<UserError>([&] { second.resume(pending); }),
             Contains("step-2: was saved with step_policy = delayed and holds a gradient with a pending update, and "
                      "this run has plain; set step_policy: delayed"));

  Engine third = initialize(small_model(), config.file(), {plain, "checkpoint.path=" + (config / "plain")});
  for (unsigned step = 0; step < 2; ++step) third.train_batch(random_batches(step));
  const std::string done = third.save_checkpoint();
  on_engines(1, config.file(), {delayed}, [&](const LocalRank& rank) {
    rank.engine.resume(done);
    const Weights loaded = owned(rank.run);
    rank.engine.train_batch(random_batches(2));
    CHECK(same(owned(rank.run), loaded));
    rank.engine.train_batch(random_batches(3));
    CHECK_FALSE(same(owned(rank.run), loaded));
  });
}

TEST_CASE("only the gradient of the step that overflows in fp16 is dropped") {
  const Config config;
  int skipped = 0;
  std::string saved;
  on_engines(1, config.file(),
             {delayed, "precision.plugin=fp16", "precision.fp16.initial_scale_power=20", "precision.fp16.hysteresis=1",
              "precision.fp16.loss_scale_window=2", "checkpoint.path=" + (config / "saved"), "train.steps=40"},
             [&](const LocalRank& rank) {
               bool applied = false;
               for (unsigned step = 0; step < 40; ++step) {
                 const Weights before = owned(rank.run);
                 const bool due = std::exchange(applied, rank.engine.train_batch(random_batches(step)).applied);
                 CAPTURE(step);
                 CHECK(same(owned(rank.run), before) != due);
                 if (!applied && due) {
                   ++skipped;
                   saved = rank.engine.save_checkpoint();
                 }
               }
             });
  CHECK(skipped > 1);
  Engine plain = initialize(small_model(), config.file(), {"precision.plugin=fp16", "train.steps=40"});
  CHECK(plain.resume(saved));  // which has nothing pending
}
