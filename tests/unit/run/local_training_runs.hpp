// Runs with `step_policy: local` for the tests of it: how they are laid out, and what is seen of one.
#pragma once
#include <ATen/ops/equal.h>

#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "far_memory.hpp"
#include "ranks.hpp"

namespace local_training {

using namespace strata;

using Tensors = std::map<std::string, at::Tensor>;
using Entry = state::OptimizerState::Entry;

// How a run is laid out: groups of `per_group` ranks.
struct Layout {
  int groups = 2;
  int per_group = 1;
  int shards = 1;  // data-parallel ranks of a group
  std::vector<std::string> settings = {};
  int ranks() const { return groups * per_group; }
};

struct Outer {
  int steps = 3, fragments = 1;
  double rate = 0.7, momentum = 0.9;
};

inline std::vector<Layout> layouts() {
  return {{2, 1, 1, {}},
          {2, 2, 2, {"precision.plugin=bf16", "partitioner.hybrid.stage=1"}},
          {3, 2, 2, {"train.global_batch=36", "optimizer.plugin=sgd", "optimizer.sgd.momentum=0.9"}},
          {2, 2, 2, {"precision.plugin=bf16", "precision.bf16.master=bf16"}},
          {2, 2, 1, {"parallel.tensor=2", "model.tie_embeddings=true"}},
          {2, 2, 1, {"parallel.pipeline=2", "model.tie_embeddings=true"}},
          {2, 2, 2, {"optimizer.plugin=adamw_8bit", "parameters=[{match: '*bias*', trainable: false}]"}}};
}

inline std::vector<std::string> of_both(const Config& config, const Layout& layout) {
  std::vector<std::string> settings{config.data(),
                                    "model.plugin=gpt_neox",
                                    "model.hidden_size=16",
                                    "model.intermediate_size=32",
                                    "model.layers=2",
                                    "model.heads=2",
                                    "model.vocabulary=31",
                                    "train.global_batch=24",
                                    "train.micro_batch=2",
                                    "train.accumulation=auto",
                                    "train.clip=0.3",
                                    "train.steps=8",
                                    "learning_rate.plugin=constant",
                                    "learning_rate.base=0.02",
                                    "learning_rate.warmup=2",
                                    "optimizer.adamw.epsilon=1e-3",
                                    "optimizer.adamw_8bit.epsilon=1e-3",
                                    "partitioner.plugin=hybrid",
                                    "partitioner.hybrid.shard_size=" + std::to_string(layout.shards)};
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  return settings;
}

inline std::vector<std::string> of_run(const Config& config, const Layout& layout, const Outer& outer) {
  std::vector<std::string> settings = of_both(config, layout);
  const auto add = [&](const std::string& key, const auto& value) {
    std::ostringstream text;
    text << value;
    settings.push_back(key + "=" + text.str());
  };
  add("step_policy", "local");
  add("local.steps", outer.steps);
  add("local.rate", outer.rate);
  add("local.momentum", outer.momentum);
  add("local.fragments", outer.fragments);
  return settings;
}

inline Batch batch_of(unsigned seed) {
  Batch batch = random_batch(seed, seed % 3 == 0 ? 4 : 0);
  batch.tokens = batch.tokens.remainder(31);
  return batch;
}

// Of the step and the data-parallel rank of the run; some of the targets count for nothing.
inline std::vector<Batch> batches_of(const Engine& engine, std::int64_t step, int data_rank) {
  std::vector<Batch> batches;
  for (std::int64_t m = 0; m < engine.accumulation(); ++m)
    batches.push_back(batch_of(static_cast<unsigned>(step * 1000 + data_rank * 50 + m)));
  return batches;
}

struct Trained {
  std::vector<double> losses, norms, evaluated;
  std::map<int, Tensors> states;        // by rank: by parameter, begin and state
  std::map<int, Tensors> first_states;  // after the first step
  std::map<int, Ledger> ledgers;
  std::map<int, std::int64_t> sent;  // between groups
};

// A program's plugin that no config here chooses: the model is the config's.
inline std::vector<ProgramPlugin> far() {
  return {program_plugin<OffloadDevice, FarMemory, FarOptions>("far")};
}

inline Tensors states_of(run::Run& run) {
  const stage::Stage& stage = run.session().stage();
  Tensors found;
  for (const Entry& entry : stage.updates.state().entries()) {
    const std::string name = entry.piece.info.parameter + " from " + std::to_string(entry.piece.info.begin) + " ";
    const auto keep = [&](const std::string& state, const BufferRange& range) {
      if (range.buffer == nullptr) return;
      stage.values.buffers().with(range, memory::Access::Read,
                                  [&](const at::Tensor& values) { found[name + state] = values.clone(); });
    };
    keep("master", entry.master);
    keep("common", entry.common);
    keep("outer momentum", entry.outer_momentum);
    for (std::size_t i = 0; i < entry.states.size(); ++i) keep(entry.states[i].name, entry.state[i]);
  }
  return found;
}

inline void check_same(const std::map<int, Tensors>& found, const std::map<int, Tensors>& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [rank, tensors] : expected)
    for (const auto& [name, values] : tensors) {
      CAPTURE(rank, name);
      CHECK(at::equal(found.at(rank).at(name), values));
    }
}

struct What {
  int until = 8;
  bool evaluates = false;
  std::string resumes = {}, saves = {}, exports = {};
};

inline Trained trained(const Config& config, const Layout& layout, std::vector<std::string> settings,
                       const What& what = {}) {
  Trained result;
  std::mutex mutex;
  if (!what.saves.empty()) settings.push_back("checkpoint.path=" + what.saves);
  const auto train = [&](const LocalRank& rank) {
    Trained mine;
    Tensors first;
    step::Session& session = rank.run.session();
    if (!what.resumes.empty()) rank.engine.resume(what.resumes);
    while (rank.engine.steps_done() < what.until) {
      const std::int64_t step = rank.engine.steps_done();
      const StepResult made = rank.engine.train_batch(batches_of(rank.engine, step, rank.engine.data_rank()));
      mine.losses.push_back(made.loss);
      mine.norms.push_back(made.gradient_norm);
      if (step == 0) first = states_of(rank.run);
      if (step == 3) session.store().reset_peaks();  // by then all slots are made
      if (what.evaluates) mine.evaluated.push_back(rank.engine.evaluate({batch_of(7)}));
    }
    if (what.evaluates && what.until == 0) mine.evaluated.push_back(rank.engine.evaluate({batch_of(7)}));
    if (!what.saves.empty()) rank.engine.save_checkpoint();
    if (!what.exports.empty()) rank.engine.export_weights(what.exports);
    const std::lock_guard lock(mutex);
    const int number = rank.engine.rank();
    result.losses = mine.losses;
    result.norms = mine.norms;
    result.evaluated = mine.evaluated;
    result.first_states[number] = first;
    result.states[number] = states_of(rank.run);
    result.ledgers[number] = session.store().ledger();
    if (const CheckedGroup* const group = session.stage().groups.find("partitioner.replicate"))
      result.sent[number] = group->traffic().total_bytes();
  };
  on_engines(layout.ranks(), config.file(), settings, train, far());
  return result;
}

}  // namespace local_training
