// Scheduler pipedream: stages update within the step, as the same delays do in one process.
#include <ATen/ops/cat.h>
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
#include <utility>

#include "checkpoint/training_checkpoint.hpp"
#include "dry_run/dry_run.hpp"
#include "ranks.hpp"
#include "update_by_hand.hpp"

using namespace strata;

namespace {

constexpr std::array weights_of_stack{"embedding.weight", "hidden.weight", "hidden2.weight", "head.weight"};
constexpr int micro_batches_of_stack = 12;

STRATA_NO_OPTIONS(StackOptions)

struct Stack final : SequentialModel {
  Stack(PluginContext&, const StackOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<HiddenLayer>("hidden", width, width);
    add<HiddenLayer>("hidden2", width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

// Its head's weight is its embedding's.
struct TiedStackEmbedding final : EmbeddingLayer {
  TiedStackEmbedding(ModelContext& context, std::int64_t tokens, std::int64_t size)
      : EmbeddingLayer(context, tokens, size) {
    weight_.info.tie = "table";
  }
};
struct TiedStackHead final : HeadLayer {
  TiedStackHead(ModelContext& context, std::int64_t tokens, std::int64_t size) : HeadLayer(context, tokens, size) {
    weight_.info.tie = "table";
  }
};

struct TiedStack final : SequentialModel {
  TiedStack(PluginContext&, const StackOptions&) : SequentialModel(::vocabulary) {
    add<TiedStackEmbedding>("embedding", ::vocabulary, width);
    add<HiddenLayer>("hidden", width, width);
    add<TiedStackHead>("head", ::vocabulary, width);
  }
};

std::vector<ProgramPlugin> stack() {
  return {program_plugin<Model, TiedStack, StackOptions>("tied_stack"),
          program_plugin<Model, Stack, StackOptions>("stack", {Capability::SplittableBackward})};
}

struct PipedLayout {
  int stages = 1;
  int data = 1;
  std::vector<std::string> settings;
  int ranks() const { return stages * data; }
};

// `per_update` 0: the default.
std::vector<std::string> piped(const PipedLayout& layout, const std::string& version, int per_update,
                               const std::string& optimizer) {
  std::vector<std::string> settings{"model.plugin=stack",
                                    "train.clip=0",
                                    "train.accumulation=" + std::to_string(micro_batches_of_stack),
                                    "train.micro_batch=" + std::to_string(4 / layout.data),
                                    "learning_rate.base=" + std::string(optimizer == "sgd" ? "0.1" : "0.02"),
                                    "learning_rate.warmup=2",
                                    "optimizer.plugin=" + optimizer,
                                    "optimizer.sgd.momentum=0.9",
                                    "optimizer.adamw.weight_decay=0.1",
                                    "parallel.pipeline=" + std::to_string(layout.stages),
                                    "parallel.cut=layers",
                                    "scheduler.plugin=pipedream",
                                    "scheduler.pipedream.version=" + version,
                                    "scheduler.pipedream.micro_batches_per_update=" + std::to_string(per_update)};
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  return settings;
}

// Two samples of each half of a micro-batch; a run of one data-parallel rank takes both halves at once.
Batch half_of(std::int64_t step, int micro_batch, int half) {
  return random_batch(static_cast<unsigned>(1000 * step + 10 * micro_batch + half));
}
Batch both_halves(std::int64_t step, int micro_batch) {
  const Batch one = half_of(step, micro_batch, 0), other = half_of(step, micro_batch, 1);
  return {at::cat({one.tokens, other.tokens}), at::cat({one.targets, other.targets})};
}

using Stacked = std::vector<at::Tensor>;  // one weight per layer

// What a run was, step by step.
struct PipedRun {
  std::vector<double> losses, norms, rates;
  std::vector<Stacked> weights;  // before the first step and after each
  std::vector<int> stage_of_layer;
  std::map<int, Ledger> ledgers;  // by rank; of the steps after the first
  std::string checkpoint;
};

// Puts what the ranks own together; what several own is the same bit for bit.
class WholeWeights {
 public:
  void add(const LocalRank& rank, std::size_t step) {
    const std::lock_guard lock(mutex_);
    if (pieces_.size() <= step) pieces_.resize(step + 1);
    const runtime::StageState& stage = rank.run.session().stage();
    for (const auto& entry : stage.optimizer_state->entries())
      stage.buffers->with(entry.master, state::Access::Read, [&](const at::Tensor& values) {
        const auto [piece, fresh] =
            pieces_[step][entry.piece.info.parameter].try_emplace(entry.piece.info.begin, values.clone());
        if (!fresh) CHECK(at::equal(piece->second, values));
      });
  }
  std::vector<Stacked> weights() const {
    std::vector<Stacked> result;
    for (const auto& step : pieces_) {
      Stacked& one = result.emplace_back();
      for (const char* const name : weights_of_stack) {
        std::vector<at::Tensor> parts;
        for (const auto& [begin, part] : step.at(name)) parts.push_back(part);
        one.push_back(at::cat(parts).view({-1, width}));
      }
    }
    return result;
  }

 private:
  std::mutex mutex_;
  std::vector<std::map<std::string, std::map<std::int64_t, at::Tensor>>> pieces_;
};

// Goes on from `from`, if it names a checkpoint, to `steps`, and saves after `saved`.
PipedRun run_of_stack(const Config& config, const PipedLayout& layout, const std::vector<std::string>& settings,
                      int steps = 3, const std::string& from = "", int saved = 0) {
  PipedRun result;
  WholeWeights whole;
  std::mutex mutex;
  on_engines(
      layout.ranks(), config.file(), settings,
      [&](const LocalRank& rank) {
        if (!from.empty()) rank.engine.resume(from);
        std::vector<double> losses, norms, rates;
        std::string checkpoint;
        whole.add(rank, 0);
        const int half = rank.run.session().place().data;
        while (rank.engine.steps_done() < steps) {
          std::vector<Batch> batches;
          for (int micro_batch = 0; micro_batch < micro_batches_of_stack; ++micro_batch)
            batches.push_back(layout.data == 1 ? both_halves(rank.engine.steps_done(), micro_batch)
                                               : half_of(rank.engine.steps_done(), micro_batch, half));
          const StepResult made = rank.engine.train_batch(batches);
          losses.push_back(made.loss);
          norms.push_back(made.gradient_norm);
          rates.push_back(made.learning_rate);
          whole.add(rank, losses.size());
          if (losses.size() == 1) rank.run.session().store().reset_peaks();  // the first step makes the slots
          if (rank.engine.steps_done() == saved) checkpoint = rank.engine.save_checkpoint();
        }
        const Placement& placement = rank.run.session().plan().placement;
        const std::lock_guard lock(mutex);
        result.losses = losses;
        result.norms = norms;
        result.rates = rates;
        result.checkpoint = checkpoint;
        result.ledgers[rank.engine.rank()] = rank.run.session().store().ledger();
        result.stage_of_layer.clear();
        for (std::size_t chunk = 0; chunk < placement.layers_of_chunk.size(); ++chunk)
          for (int layer = placement.layers_of_chunk[chunk].first; layer < placement.layers_of_chunk[chunk].second;
               ++layer)
            result.stage_of_layer.push_back(placement.stage_of_chunk[chunk]);
      },
      stack());
  result.weights = whole.weights();
  return result;
}

double loss_and_gradients_of_stack(const Stacked& weights, const Batch& batch, Stacked& gradients) {
  torch::autograd::variable_list leaves;
  for (const at::Tensor& weight : weights) leaves.push_back(weight.detach().requires_grad_());
  at::Tensor hidden = at::embedding(leaves[0], batch.tokens);
  for (const std::size_t layer : {1, 2}) hidden = hidden + at::gelu(at::matmul(hidden, leaves[layer].t()));
  const at::Tensor logits = at::matmul(hidden, leaves[3].t()).flatten(0, 1);
  const at::Tensor loss = at::cross_entropy_loss(logits, batch.targets.flatten());
  gradients = torch::autograd::grad({loss}, leaves);
  return loss.item<double>();
}

// The papers' words: how many updates the weights have that micro-batch k of `stages` meets on a stage.
int version_of(const std::string& version, int k, int stage, int stages, int per_update) {
  if (version == "vertical") return std::max(0, k - (stages - 1)) / per_update;
  if (version == "2bw") return std::max(0, k / per_update - 1);
  return std::max(0, k - (stages - 1 - stage)) / per_update;
}

// The same run in this process, from `found`'s first weights.
PipedRun simulated(const PipedRun& found, int stages, const std::string& version, int per_update,
                   const std::string& optimizer) {
  PipedRun result;
  result.weights = {found.weights.front()};
  std::vector<std::vector<at::Tensor>> states(weights_of_stack.size());
  int updates = 0;
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    std::vector<Stacked> versions;  // by layer
    for (const at::Tensor& weight : result.weights.back()) versions.push_back({weight});
    Stacked sums(weights_of_stack.size());
    double loss = 0.0, squares = 0.0;
    for (int k = 0; k < micro_batches_of_stack; ++k) {
      Stacked used, gradients;
      for (std::size_t layer = 0; layer < versions.size(); ++layer)
        used.push_back(versions[layer].at(
            static_cast<std::size_t>(version_of(version, k, found.stage_of_layer[layer], stages, per_update))));
      loss += loss_and_gradients_of_stack(used, both_halves(static_cast<std::int64_t>(step), k), gradients);
      for (std::size_t layer = 0; layer < sums.size(); ++layer)
        sums[layer] = sums[layer].defined() ? sums[layer] + gradients[layer] : gradients[layer];
      if ((k + 1) % per_update != 0) continue;
      ++updates;
      for (std::size_t layer = 0; layer < sums.size(); ++layer) {
        const at::Tensor mean = std::exchange(sums[layer], at::Tensor()) / static_cast<double>(per_update);
        squares += mean.square().sum().item<double>();
        at::Tensor weight = versions[layer].back();
        update_by_hand(optimizer, weight, mean, states[layer], found.rates[step], updates);
        versions[layer].push_back(weight);
      }
    }
    result.losses.push_back(loss / micro_batches_of_stack);
    result.norms.push_back(std::sqrt(squares * per_update / micro_batches_of_stack));
    result.weights.emplace_back();
    for (const Stacked& of_layer : versions) result.weights.back().push_back(of_layer.back());
  }
  return result;
}

double farthest(const Stacked& one, const Stacked& other) {
  double most = 0.0;
  for (std::size_t layer = 0; layer < one.size(); ++layer)
    most = std::max(most, (one[layer] - other[layer]).abs().max().item<double>());
  return most;
}

void check_as_simulated(const PipedRun& found, const PipedRun& expected) {
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    CAPTURE(step);
    CHECK(found.losses[step] == Approx(expected.losses[step]).epsilon(2e-6));
    CHECK(found.norms[step] == Approx(expected.norms[step]).epsilon(1e-5));
    CHECK(farthest(found.weights[step + 1], expected.weights[step + 1]) < 2e-6);
  }
}

void check_same_bits(const PipedRun& one, const PipedRun& other, std::size_t from = 0) {
  CHECK(one.losses ==
        std::vector<double>(other.losses.begin() + static_cast<std::ptrdiff_t>(from), other.losses.end()));
  CHECK(one.norms == std::vector<double>(other.norms.begin() + static_cast<std::ptrdiff_t>(from), other.norms.end()));
  CHECK(farthest(one.weights.back(), other.weights.back()) == 0.0);
}

}  // namespace

TEST_CASE("pipedream computes what autograd with the same delays does in one process") {
  const std::string version = GENERATE("stash", "vertical", "2bw"), optimizer = GENERATE("sgd", "adamw");
  const Config config;
  for (const int stages : {2, 3, 4})
    for (const PipedLayout& layout :
         {PipedLayout{stages, 1, {}}, PipedLayout{stages, 2, {"partitioner.plugin=ddp", "activations.checkpoint=all"}},
          PipedLayout{stages, 2, {"partitioner.plugin=zero1"}},
          PipedLayout{stages, 2, {"partitioner.plugin=zero2", "activations.checkpoint=all"}}}) {
      CAPTURE(version, optimizer, stages, layout.settings);
      const PipedRun found = run_of_stack(config, layout, piped(layout, version, 0, optimizer));
      check_as_simulated(found, simulated(found, stages, version, version == "2bw" ? stages : 1, optimizer));
    }
}

TEST_CASE("pipedream takes several micro-batches for an update, and its versions differ by more than rounding") {
  const Config config;
  const PipedLayout layout{3, 2, {"partitioner.plugin=zero1"}};
  std::vector<Stacked> ends;
  for (const auto& [version, per_update] : {std::pair{"stash", 3}, std::pair{"vertical", 3}, std::pair{"2bw", 3},
                                            std::pair{"2bw", 6}, std::pair{"stash", 12}}) {
    CAPTURE(version, per_update);
    const PipedRun found = run_of_stack(config, layout, piped(layout, version, per_update, "sgd"));
    check_as_simulated(found, simulated(found, 3, version, per_update, "sgd"));
    for (const Stacked& end : ends) CHECK(farthest(end, found.weights.back()) > 1e-4);
    ends.push_back(found.weights.back());
  }
}

TEST_CASE("pipedream on one stage is training with small batches, whole or in parts") {
  const Config config;
  const PipedLayout layout{1, 1, {}};
  const PipedRun found = run_of_stack(config, layout, piped(layout, "stash", 1, "adamw"));
  check_as_simulated(found, simulated(found, 1, "stash", 1, "adamw"));
  on_engines(
      1, config.file(), piped(layout, "stash", 1, "adamw"),
      [&](const LocalRank& rank) {
        for (std::size_t step = 0; step < found.losses.size(); ++step) {
          std::vector<Batch> batches;
          for (int k = 0; k < micro_batches_of_stack; ++k)
            batches.push_back(both_halves(static_cast<std::int64_t>(step), k));
          CHECK(step_in_parts(rank.engine, batches).loss == found.losses[step]);
        }
      },
      stack());
}

TEST_CASE("recomputation changes no bit of pipedream, and an optimizer with sums gives the same on every layout") {
  const Config config;
  const std::string version = GENERATE("stash", "vertical", "2bw");
  CAPTURE(version);
  for (const char* const precision : {"fp32", "bf16"}) {
    PipedLayout layout{3, 2, {"partitioner.plugin=zero2", std::string("precision.plugin=") + precision}};
    const PipedRun kept = run_of_stack(config, layout, piped(layout, version, 0, "adamw"));
    layout.settings.emplace_back("activations.checkpoint=all");
    check_same_bits(run_of_stack(config, layout, piped(layout, version, 0, "adamw")), kept);
  }
  const PipedLayout one{2, 1, {}}, two{2, 2, {"partitioner.plugin=zero2"}};
  const PipedRun alone = run_of_stack(config, one, piped(one, version, 0, "adafactor")),
                 cut = run_of_stack(config, two, piped(two, version, 0, "adafactor"));
  for (std::size_t step = 0; step < alone.losses.size(); ++step)
    CHECK(cut.losses[step] == Approx(alone.losses[step]).epsilon(2e-6));
}

TEST_CASE("pipedream resumes bit by bit, and a checkpoint counts every update") {
  const Config config;
  const std::string version = GENERATE("stash", "2bw");
  const PipedLayout layout{2, 2, {"partitioner.plugin=zero2"}};
  std::vector<std::string> settings = piped(layout, version, 0, "adamw");
  const PipedRun resumed_from = [&] {
    std::vector<std::string> saving = settings;
    saving.push_back("checkpoint.path=" + (config / "saved"));
    return run_of_stack(config, layout, saving, 5, "", 2);
  }();
  check_same_bits(run_of_stack(config, layout, settings, 5, resumed_from.checkpoint), resumed_from, 2);
  const checkpoint::TrainingCheckpoint saved = checkpoint::TrainingCheckpoint::read(resumed_from.checkpoint);
  CHECK(saved.updates == 2);
  CHECK(saved.optimizer_updates == 2 * (version == "2bw" ? 6 : 12));
}

TEST_CASE("the copies of weights are in the ledger, and the dry run counts them") {
  const Config config;
  for (const auto& [version, copies] :
       {std::pair{"stash", std::array{2, 1, 0}}, std::pair{"vertical", std::array{2, 2, 2}},
        std::pair{"2bw", std::array{1, 1, 1}}}) {
    const PipedLayout layout{3, 1, {}};
    const std::vector<std::string> settings = piped(layout, version, 0, "sgd");
    for (const auto& [rank, ledger] : run_of_stack(config, layout, settings).ledgers) {
      CAPTURE(version, rank);
      const auto held = [&, &counted = ledger](Category category) {
        return counted.now[static_cast<std::size_t>(category)][static_cast<std::size_t>(Tier::Device)];
      };
      // Every flat parameter of this model takes less than the pool's granule.
      const int layers = rank == 2 ? 2 : 1;
      CHECK(held(Category::Gathered) == 512 * layers * copies[static_cast<std::size_t>(rank)]);
      const runtime::ResolvedRun resolved =
          read_program_config(nullptr, config.file(), settings, stack(), {layout.ranks(), "the test"});
      const Ledger planned = runtime::dry_run(resolved.config, *resolved.registry, rank).ledger;
      CHECK(planned.peak == ledger.peak);
      CHECK(planned.total_peak == ledger.total_peak);
    }
  }
}

TEST_CASE("what cannot be where stages update within the step is refused on all ranks, with what to do") {
  const Config config;
  const PipedLayout layout{2, 1, {}};
  const auto said = [&](const std::vector<std::string>& more, const char* version = "stash") {
    std::vector<std::string> settings = piped(layout, version, 0, "sgd");
    settings.insert(settings.end(), more.begin(), more.end());
    return error_of<UserError>([&] { run_of_stack(config, layout, settings); });
  };
  CHECK_THAT(said({"train.clip=1"}),
             Contains("train.clip is 1, and scheduler/pipedream updates within the step: no stage "
                      "knows the norm of the whole gradient before its update; set train.clip: 0"));
  CHECK_THAT(said({"step_policy=delayed"}),
             Contains("step_policy is not plain, and") && Contains("set step_policy: plain"));
  CHECK_THAT(said({"precision.plugin=fp16"}),
             Contains("precision/fp16 finds its loss scale by steps that overflow") && Contains("a fixed loss scale"));
  CHECK_THAT(said({"partitioner.plugin=zero3"}),
             Contains("partitioner/zero3 releases parameters") && Contains("ZeRO stage 1 or 2"));
  CHECK_THAT(said({"model.plugin=tied_stack"}),
             Contains("the parameter embedding.weight is used by layers of several chunks, and scheduler/pipedream "
                      "updates within the step"));
  CHECK_THAT(said({"scheduler.pipedream.micro_batches_per_update=5"}),
             Contains("micro_batches_per_update is 5 and does not divide the 12 micro-batches of a step"));
  CHECK_THAT(said({"scheduler.pipedream.micro_batches_per_update=1"}, "2bw"),
             Contains("version is 2bw, which needs at least as many as there are stages, 2"));
  CHECK(said({"precision.plugin=fp16", "precision.fp16.loss_scale=64"}).empty());
}

TEST_CASE("pipedream ends a run whose targets are ignored, or whose gradient is not finite") {
  const Config config;
  const PipedLayout layout{1, 1, {}};
  const auto step = [&](Engine& engine, int ignored) {
    std::vector<Batch> batches;
    for (int k = 0; k < micro_batches_of_stack; ++k) batches.push_back(both_halves(0, k));
    if (ignored > 0) batches[3].targets.select(0, 0).fill_(-100);
    engine.train_batch(batches);
  };
  const auto trained_once = [&](std::vector<std::string> more, int ignored) {
    std::vector<std::string> settings = piped(layout, "stash", 1, "sgd");
    settings.insert(settings.end(), more.begin(), more.end());
    on_engines(
        1, config.file(), settings,
        [&](const LocalRank& rank) {
          for (int i = 0; i < 3; ++i) step(rank.engine, ignored);
        },
        stack());
  };
  CHECK_THAT(error_of<UserError>([&] { trained_once({}, 1); }),
             Contains("step 0: 5 of 240 targets are ignored, and scheduler/pipedream updates within the step"));
  CHECK_THAT(error_of<EnvironmentError>([&] {
               trained_once({"learning_rate.base=1e30", "learning_rate.warmup=0"}, 0);
             }),
             Contains("the gradient is not finite, and scheduler/pipedream has updated weights by it"));
}
