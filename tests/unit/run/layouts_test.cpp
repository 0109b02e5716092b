// A checkpoint that is read on other ranks and written again holds the same bits.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "checkpoint/ranges.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

const std::vector<std::string> common{"train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto",
                                      "learning_rate.base=0.1"};

std::vector<ProgramPlugin> model() {
  return {{PluginKind::Model,
           "small_one",
           [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); },
           {},
           {}}};
}

// Trains for some steps, from `from` if it is given, and saves into `to`; returns the checkpoint's folder.
std::string save(const Config& config, int ranks, std::vector<std::string> settings, const std::string& from,
                 const std::string& to, int steps) {
  settings.insert(settings.end(), common.begin(), common.end());
  settings.insert(settings.end(), {config.data(), "checkpoint.path=" + to});
  std::string folder;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        if (!from.empty()) rank.engine.resume(from);
        for (int step = 0; step < steps; ++step) rank.engine.train_batch(rank.engine.batches());
        const std::string saved = rank.engine.save_checkpoint();
        const std::lock_guard lock(mutex);
        folder = saved;
      },
      model());
  return folder;
}

// Every state of every parameter of a checkpoint, whole.
std::map<std::string, at::Tensor> contents(const std::string& folder) {
  const auto saved = checkpoint::TrainingCheckpoint::read(folder);
  const checkpoint::RangeSource source(folder, saved.files, saved.parameters);
  std::map<std::string, at::Tensor> found;
  for (const checkpoint::SavedParameter& parameter : saved.parameters)
    for (const std::string& state : source.states(parameter.name)) {
      const std::int64_t elements = source.elements(parameter.name, state);
      at::Tensor& values = found[parameter.name + " " + state];
      values = at::empty({elements}, source.dtype(parameter.name, state));
      source.read(parameter.name, state, 0, elements, values);
    }
  return found;
}

void check_contents(const std::string& folder, const std::map<std::string, at::Tensor>& expected) {
  const std::map<std::string, at::Tensor> found = contents(folder);
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, values] : expected) {
    INFO(name);
    CHECK(at::equal(found.at(name), values));
  }
}

struct SavedOn {
  int ranks;
  std::vector<std::string> settings;
};

// Trains on each layout, and reads what it saved on every one. `holds`: a state among those saved.
void check_layouts(const std::vector<SavedOn>& places, const std::vector<std::string>& shared,
                   const std::string& holds) {
  for (const SavedOn& writer : places) {
    const Config config;
    const auto chosen = [&](const SavedOn& layout) {
      std::vector<std::string> settings = layout.settings;
      settings.insert(settings.end(), shared.begin(), shared.end());
      return settings;
    };
    const std::string first = save(config, writer.ranks, chosen(writer), "", config / "first", 3);
    const std::map<std::string, at::Tensor> expected = contents(first);
    CHECK(expected.contains(holds));
    for (std::size_t reader = 0; reader < places.size(); ++reader) {
      CAPTURE(shared, writer.ranks, places[reader].ranks);
      const std::string again = save(config, places[reader].ranks, chosen(places[reader]), first,
                                     config / ("again" + std::to_string(reader)), 0);
      check_contents(again, expected);
    }
  }
}

}  // namespace

TEST_CASE("a checkpoint read and saved on other ranks is the same bit for bit") {
  const std::string optimizer = GENERATE("adafactor", "adamw", "muon");
  const std::vector<SavedOn> places{{1, {"partitioner.plugin=ddp"}},
                                    {3, {"partitioner.plugin=zero3"}},
                                    {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
                                    {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3"}}};
  check_layouts(places, {"model.plugin=small_one", "optimizer.plugin=" + optimizer},
                optimizer == "adafactor" ? "embedding.weight row_var" : "embedding.weight exp_avg");
}

// The vocabulary is odd, and q, k and v lie one after the other in a parameter whose heads are shared.
TEST_CASE("a checkpoint holds whole parameters, with any tensor parallelism") {
  const std::string tied = GENERATE("true", "false"), optimizer = GENERATE("adamw", "adafactor");
  const std::vector<SavedOn> places{
      {4, {"parallel.tensor=2", "parallel.sequence=true", "partitioner.plugin=zero3"}},
      {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=2", "parallel.pipeline=2", "scheduler.plugin=1f1b", "precision.plugin=fp32"}},
      {3, {"parallel.tensor=3", "partitioner.plugin=zero2"}}};
  check_layouts(places,
                {"model.plugin=gpt2", "model.hidden_size=24", "model.layers=2", "model.heads=6", "model.vocabulary=101",
                 "model.tie_embeddings=" + tied, "optimizer.plugin=" + optimizer},
                "transformer.h.1.attn.c_attn.weight " + std::string(optimizer == "adamw" ? "exp_avg" : "row_var"));
}

TEST_CASE("every optimizer resumes with the same bits, on another number of ranks too") {
  const auto [optimizer, more] = GENERATE(table<std::string, std::vector<std::string>>(
      {{"adafactor", {}},
       {"adagrad", {}},
       {"adam_mini", {"optimizer.head_size=16"}},
       {"adamw", {}},
       {"adamw_8bit", {}},
       {"lamb", {}},
       {"lion", {}},
       {"muon", {}},
       {"onebit_adam", {"optimizer.freeze_step=1", "optimizer.epsilon=0.1", "partitioner.plugin=ddp", "train.clip=0"}},
       {"onebit_adam",
        {"optimizer.freeze_step=1", "optimizer.epsilon=0.1", "partitioner.plugin=zero1", "train.clip=0"}},
       {"schedule_free", {}},
       {"sgd", {"optimizer.momentum=0.9"}},
       {"zero_one_adam",  // between two exchanges
        {"optimizer.var_freeze_step=1", "optimizer.local_step_scaler=1", "optimizer.epsilon=0.1",
         "partitioner.plugin=ddp", "train.clip=0"}}}));
  CAPTURE(optimizer);
  std::vector<std::string> settings{"model.plugin=gpt_neox",
                                    "model.hidden_size=64",
                                    "model.layers=1",
                                    "model.heads=4",
                                    "model.vocabulary=101",
                                    "partitioner.plugin=zero3",
                                    "optimizer.plugin=" + optimizer};
  settings.insert(settings.end(), more.begin(), more.end());
  const Config config;
  const std::string half = save(config, 2, settings, "", config / "half", 3);
  check_contents(save(config, 2, settings, half, config / "resumed", 1),
                 contents(save(config, 2, settings, "", config / "whole", 4)));
  check_contents(save(config, 1, settings, half, config / "one", 0), contents(half));
}
