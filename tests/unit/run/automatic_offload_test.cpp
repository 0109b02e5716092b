// `offload: auto` in a program that brings its model: steps with it are measured before the run's own.
#include "group/launch_place.hpp"
#include "plan/choose_offload.hpp"
#include "program.hpp"
#include "run/implementation.hpp"
#include "run/launch_groups.hpp"

using namespace strata;

TEST_CASE("a program lets homes be chosen for a model of its own, and no number changes") {
  const Config config;
  const std::vector<std::string> settings{config.data(), "partitioner.plugin=zero3", "train.accumulation=2",
                                          "train.global_batch=auto", "train.steps=3"};
  std::vector<std::string> automatic = settings;
  automatic.insert(automatic.end(), {"offload.automatic=true", "offload.host.plugin=cpu"});

  const group::LaunchPlace place = group::read_environment();
  const resolve::ResolvedRun settled =
      read_program_config(small_model(), config.file(), automatic, {}, {1, "the test"}, [&](resolve::ResolvedRun& run) {
        CHECK(run.config.offload.automatic);
        plan::settle_offload(run, {0, 1, 0}, 1, run::launch_groups(place), false);
      });
  CHECK_FALSE(settled.config.offload.automatic);

  Engine chosen = initialize(small_model(), config.file(), automatic);
  Engine plain = initialize(small_model(), config.file(), settings);
  while (plain.steps_done() < plain.steps()) {
    const StepResult one = chosen.train_batch(chosen.batches()), other = plain.train_batch(plain.batches());
    CHECK(one.loss == other.loss);
    CHECK(one.gradient_norm == other.gradient_norm);
  }
}
