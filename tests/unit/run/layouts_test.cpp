// A checkpoint that is read on other ranks and written again holds the same bits.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "checkpoint/ranges.hpp"
#include "ranks.hpp"

using namespace strata;

namespace {

const std::vector<std::string> common{"train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto",
                                      "learning_rate.base=0.1", "model.plugin=small_one"};

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

}  // namespace

TEST_CASE("what is read on another number of ranks and saved again is the same bit for bit") {
  const std::string optimizer = GENERATE("adafactor", "adamw");
  struct Layout {
    int ranks;
    std::vector<std::string> settings;
  };
  const std::vector<Layout> layouts{{1, {"partitioner.plugin=ddp"}},
                                    {3, {"partitioner.plugin=zero3"}},
                                    {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
                                    {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3"}}};
  for (const Layout& writer : layouts) {
    const Config config;
    const auto chosen = [&](const Layout& layout) {
      std::vector<std::string> settings = layout.settings;
      settings.push_back("optimizer.plugin=" + optimizer);
      return settings;
    };
    const std::string first = save(config, writer.ranks, chosen(writer), "", config / "first", 3);
    const std::map<std::string, at::Tensor> expected = contents(first);
    CHECK(expected.contains(optimizer == "adamw" ? "embedding.weight exp_avg" : "embedding.weight row_var"));
    for (std::size_t reader = 0; reader < layouts.size(); ++reader) {
      CAPTURE(optimizer, writer.ranks, layouts[reader].ranks);
      const std::string again = save(config, layouts[reader].ranks, chosen(layouts[reader]), first,
                                     config / ("again" + std::to_string(reader)), 0);
      const std::map<std::string, at::Tensor> found = contents(again);
      REQUIRE(found.size() == expected.size());
      for (const auto& [name, values] : expected) {
        INFO(name);
        CHECK(at::equal(found.at(name), values));
      }
    }
  }
}
