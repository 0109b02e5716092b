// Which settings a resumed run may change, and which changes it says.
#include <strata/error.hpp>
#include <strata/learning_rate.hpp>

#include "catch.hpp"
#include "checkpoint/resume_rules.hpp"
#include "config/keys.hpp"

using namespace strata;
using namespace strata::checkpoint;
using namespace strata::step;
using Catch::Matchers::Contains;
using config::OptionValue;

namespace {

void choose(config::RunConfig& run, const config::Key& key, config::PluginChoice choice) {
  const std::string slot = key.option.name.substr(0, key.option.name.rfind('.'));
  choice.slot = slot;
  key.choice.set(run, std::move(choice));
}

// Sets a key, a plugin (first), or an option of its: SLOT.PLUGIN.OPTION.
void put(config::RunConfig& run, const std::string& path, const OptionValue& value) {
  run.origins[path] = "test";
  if (const config::Key* const key = config::find_key(path)) {
    if (key->kind.empty()) return key->field.set(run, value);
    const auto& name = std::get<std::string>(value);
    return choose(run, *key, {"", key->kind, name, name, {}, {}});
  }
  const std::size_t slot = path.find('.'), option = path.find('.', slot + 1);
  const config::Key& key = *config::find_key(path.substr(0, slot) + ".plugin");
  config::PluginChoice choice = *key.choice.get(run);
  choice.plugin = choice.name = path.substr(slot + 1, option - slot - 1);
  choice.options.set(path.substr(option + 1), value);
  choose(run, key, std::move(choice));
}

// A run of ten steps at a constant rate.
config::RunConfig run_with(const std::vector<std::pair<std::string, OptionValue>>& settings) {
  config::RunConfig run;
  run.train.steps = 10;
  for (const auto& [path, value] : settings) put(run, path, value);
  return run;
}

class ConstantRate final : public LearningRate {
 public:
  double rate(std::int64_t, const TrainingRun&) const override { return 1e-3; }
};

// What a resumed run at a constant rate says of its changes.
std::string said(const checkpoint::TrainingCheckpoint& saved, const config::RunConfig& run) {
  ConstantRate constant;
  return differing_settings(saved, run, RunLearningRate({&constant, "learning_rate/constant"}, run));
}

checkpoint::TrainingCheckpoint saved_with(std::vector<std::pair<std::string, std::string>> settings) {
  checkpoint::TrainingCheckpoint saved;
  saved.folder = "/saved";
  saved.step = 5;
  saved.config = std::move(settings);
  return saved;
}

}  // namespace

TEST_CASE("A resumed run keeps the settings of samples and random numbers") {
  const auto saved = saved_with({{"train.seed", "1"}, {"train.global_batch", "6.4e1"}, {"model.plugin", "little"}});
  CHECK_NOTHROW(check_settings(saved, run_with({{"train.seed", std::int64_t{1}},
                                                {"train.global_batch", std::int64_t{64}},
                                                {"model.plugin", std::string("little")}})));
  CHECK_THROWS_WITH(check_settings(saved, run_with({{"train.seed", std::int64_t{2}}})),
                    Contains("/saved: was saved with train.seed = 1, and this run has 2; a resumed run must keep it"));
  CHECK_THROWS_WITH(check_settings(saved, run_with({{"train.global_batch", std::int64_t{32}}})),
                    Contains("train.global_batch = 6.4e1, and this run has 32"));
  CHECK_THROWS_WITH(check_settings(saved, run_with({{"model.plugin", std::string("large")}})),
                    Contains("model.plugin = little"));
  CHECK_NOTHROW(check_settings(saved_with({{"model.plugin", "/old/little.so"}}),
                               run_with({{"model.plugin", std::string("little")}})));
  checkpoint::TrainingCheckpoint pending = saved;
  pending.pending.emplace();
  config::RunConfig late = run_with({});
  CHECK_THROWS_WITH(check_settings(pending, late), Contains("step_policy = delayed") && Contains("this run has plain"));
  late.step_policy = config::StepPolicy::Delayed;
  CHECK_NOTHROW(check_settings(pending, late));
  config::RunConfig shorter = run_with({});
  shorter.train.steps = 5;
  CHECK_NOTHROW(check_settings(saved, shorter));  // a finished run is evaluated and exported
  shorter.train.steps = 4;
  CHECK_THROWS_WITH(check_settings(saved, shorter), Contains("has 5 steps, and train.steps is 4"));
}

TEST_CASE("Changes to the computation are reported by value, not by spelling") {
  const auto saved = saved_with({{"train.clip", "1e0"},
                                 {"optimizer.adamw.betas", "[0.9, 0.95]"},
                                 {"train.steps", "10"},
                                 {"checkpoint.keep", "3"},
                                 {"model.init", "/here"},
                                 {"communicator.plugin", "gloo"},
                                 {"communicator.gloo.interface", "lo"}});
  std::vector<std::pair<std::string, OptionValue>> same{{"train.clip", 1.0},
                                                        {"optimizer.adamw.betas", std::vector<double>{0.9, 0.95}},
                                                        {"train.steps", std::int64_t{10}},
                                                        {"checkpoint.keep", std::int64_t{1}},
                                                        {"model.init", std::string("/there")},
                                                        {"communicator.plugin", std::string("shm")}};
  CHECK(said(saved, run_with(same)) == "");
  same[0].second = 2.0;
  same[1].first = "optimizer.sgd.momentum";
  same[1].second = 0.9;
  CHECK(said(saved, run_with(same)) ==
        "train.clip: 1e0 -> 2, optimizer.adamw.betas: [0.9, 0.95] -> not set, "
        "optimizer.sgd.momentum: not set -> 0.9");
}

TEST_CASE("of a slot whose plugin changed, its options are left out") {
  const auto saved = saved_with({{"partitioner.plugin", "zero2"},
                                 {"partitioner.zero2.bucket", "4"},
                                 {"parallel.tensor", "2"},
                                 {"optimizer.plugin", "adamw"},
                                 {"optimizer.adamw.eps", "1e-8"}});
  CHECK(said(saved, run_with({{"partitioner.plugin", std::string("zero3")},
                              {"partitioner.zero3.bucket", std::int64_t{8}},
                              {"parallel.tensor", std::int64_t{2}},
                              {"optimizer.plugin", std::string("adamw")},
                              {"optimizer.adamw.eps", 1e-6}})) ==
        "partitioner.plugin: zero2 -> zero3, optimizer.adamw.eps: 1e-8 -> 1e-06");
}
