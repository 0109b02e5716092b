// A small model of four layers under scheduler pipedream, and what was seen of a run of it.
#pragma once
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <strata/options.hpp>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace piped_stack {

using namespace strata;

inline constexpr std::array weights_of_stack{"embedding.weight", "hidden.weight", "hidden2.weight", "head.weight"};
inline constexpr int micro_batches_of_stack = 12;

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

inline std::vector<ProgramPlugin> stack() {
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
inline Batch half_of(std::int64_t step, int micro_batch, int half) {
  return random_batch(static_cast<unsigned>(1000 * step + 10 * micro_batch + half));
}
inline Batch both_halves(std::int64_t step, int micro_batch) {
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
    const stage::Stage& stage = rank.run.session().stage();
    for (const auto& entry : stage.updates.state().entries())
      stage.values.buffers().with(entry.master, memory::Access::Read, [&](const at::Tensor& values) {
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
inline PipedRun run_of_stack(const Config& config, const PipedLayout& layout, const std::vector<std::string>& settings,
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
        const int half = rank.run.session().place().at(Axis::Data);
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

}  // namespace piped_stack
