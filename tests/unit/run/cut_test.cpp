// How a model's layers come to the chunks of a pipeline.
#include <strata/options.hpp>

#include <chrono>
#include <thread>

#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(SlowOptions)

// The second of the layers takes longer than all others together, on a busy machine too, and says nothing of it.
struct SlowLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return {{at::matmul(input[0], weight_.tensor.t())}, {}, {}};
  }
  int milliseconds = 20;
};

struct SlowModel final : SequentialModel {
  SlowModel(PluginContext&, const SlowOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<SlowLayer>("slow", width, width);
    for (int layer = 0; layer < 5; ++layer) add<HiddenLayer>("hidden" + std::to_string(layer), width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

// The layers of each chunk, and the losses of two steps.
struct Cut {
  std::vector<std::pair<int, int>> layers;
  std::vector<double> losses;
};

std::vector<ProgramPlugin> small_one() {
  return {{PluginKind::Model,
           "small_one",
           [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); },
           {},
           {}}};
}

Cut trained_with(int ranks, const std::vector<std::string>& more,
                 const std::vector<ProgramPlugin>& plugins = small_one()) {
  const Config config;
  std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                    "train.accumulation=auto", "model.plugin=small_one"};
  settings.insert(settings.end(), more.begin(), more.end());
  Cut found;
  std::mutex mutex;
  on_engines(
      ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        std::vector<double> losses;
        for (int step = 0; step < 2; ++step) losses.push_back(rank.engine.train_batch(rank.engine.batches()).loss);
        const std::lock_guard lock(mutex);
        found = {rank.run.session().stage().layers.plan().placement.layers_of_chunk, losses};
      },
      plugins);
  return found;
}

}  // namespace

TEST_CASE("a model is cut by parameters, by operations, evenly or as the config says, and trains alike") {
  const std::vector<double> alone = trained_with(1, {}).losses;
  const int layers = trained_with(1, {}).layers.back().second;
  REQUIRE(layers == 3);
  for (const auto& [setting, second] :
       std::vector<std::pair<std::string, int>>{{"parallel.cut=layers", 1},
                                                {"parallel.layers_per_chunk=[2, 1]", 2},
                                                {"parallel.layers_per_chunk=[1, 2]", 1}}) {
    const Cut found = trained_with(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", setting});
    CAPTURE(setting);
    CHECK(found.layers == std::vector<std::pair<int, int>>{{0, second}, {second, layers}});
    for (std::size_t step = 0; step < 2; ++step) CHECK(found.losses[step] == Approx(alone[step]).epsilon(2e-6));
  }
  for (const char* by : {"parallel.cut=flops", "parallel.cut=parameters"})
    CHECK_NOTHROW(trained_with(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", by}));
  for (const char* cut : {"parallel.cut=time", "parallel.cut=names"})
    CHECK_THROWS_WITH(trained_with(1, {cut}),
                      Contains("it must be auto, flops, measured, parameters, layers or names:"));
  CHECK_THROWS_WITH(
      trained_with(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "parallel.layers_per_chunk=[1, 3]"}),
      Contains("has 2 numbers with the sum 4") && Contains("with the sum 3: the layers of the model"));
}

TEST_CASE("a model is cut by the time that its layers take, or by their names") {
  const std::vector<ProgramPlugin> slow{program_plugin<Model, SlowModel, SlowOptions>("small_one")};
  const auto second_chunk = [&](const std::string& setting, int ranks = 2) {
    const Cut found = trained_with(ranks, {"parallel.pipeline=2", "scheduler.plugin=1f1b", setting}, slow);
    REQUIRE(found.layers.size() == 2);
    return found.layers[1].first;
  };
  CHECK(second_chunk("parallel.cut=layers") == 4);
  CHECK(second_chunk("parallel.cut=measured") == 2);
  CHECK(second_chunk("parallel.cut=measured", 4) == 2);
  CHECK(second_chunk("parallel.cut=names:hidden[01234]") == 4);
  CHECK(second_chunk("parallel.cut=names:*[mn]*") < 5);
  CHECK_THROWS_WITH(second_chunk("parallel.cut=names:layer*"),
                    Contains("no layer of this model has such a name; they are embedding, slow, hidden0"));
}
