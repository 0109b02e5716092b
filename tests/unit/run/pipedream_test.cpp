// Scheduler pipedream: stages update within the step, as the same delays do in one process.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/training_checkpoint.hpp"
#include "piped_stack.hpp"
#include "update_by_hand.hpp"

using namespace piped_stack;

namespace {

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

TEST_CASE("pipedream equals autograd with the same delays in one process") {
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

TEST_CASE("pipedream updates after several micro-batches, and its versions differ") {
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

TEST_CASE("recomputation and the layout change no result of pipedream") {
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
