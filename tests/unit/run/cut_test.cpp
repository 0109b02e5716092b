// How a model's layers come to the chunks of a pipeline.
#include "ranks.hpp"

using namespace strata;

namespace {

// The layers of each chunk, and the losses of two steps.
struct Cut {
  std::vector<std::pair<int, int>> layers;
  std::vector<double> losses;
};

Cut cut(int ranks, const std::vector<std::string>& more) {
  const Config config;
  std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                    "train.accumulation=auto", "model.plugin=small_one"};
  settings.insert(settings.end(), more.begin(), more.end());
  Cut found;
  std::mutex mutex;
  on_engines(ranks, config.file(), settings,
             [&](const LocalRank& rank) {
               std::vector<double> losses;
               for (int step = 0; step < 2; ++step)
                 losses.push_back(rank.engine.train_batch(rank.engine.batches()).loss);
               const std::lock_guard lock(mutex);
               found = {rank.run.session().stage().placement.layers_of_chunk, losses};
             },
             {{PluginKind::Model,
               "small_one",
               [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); },
               {},
               {}}});
  return found;
}

}  // namespace

TEST_CASE("a model is cut by parameters, by operations, evenly or as the config says, and trains alike") {
  const std::vector<double> alone = cut(1, {}).losses;
  const int layers = cut(1, {}).layers.back().second;
  REQUIRE(layers == 3);
  for (const auto& [setting, second] :
       std::vector<std::pair<std::string, int>>{{"parallel.cut=layers", 1},
                                                {"parallel.layers_per_chunk=[2, 1]", 2},
                                                {"parallel.layers_per_chunk=[1, 2]", 1}}) {
    const Cut found = cut(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", setting});
    CAPTURE(setting);
    CHECK(found.layers == std::vector<std::pair<int, int>>{{0, second}, {second, layers}});
    for (std::size_t step = 0; step < 2; ++step) CHECK(found.losses[step] == Approx(alone[step]).epsilon(2e-6));
  }
  for (const char* by : {"parallel.cut=flops", "parallel.cut=parameters"})
    CHECK_NOTHROW(cut(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", by}));
  CHECK_THROWS_WITH(cut(1, {"parallel.cut=time"}),
                    Contains("parallel.cut") && Contains("parameters") && Contains("layers"));
  CHECK_THROWS_WITH(cut(2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "parallel.layers_per_chunk=[1, 3]"}),
                    Contains("sum up to 4") && Contains("the model 3 layers"));
}
