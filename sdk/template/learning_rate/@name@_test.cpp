// @name@: a schedule is a function, so its test is its values.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/learning_rate.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("the rate falls from the base to zero") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<LearningRate> schedule(library, {{"power", "2"}});
  const TrainingRun run{1e-3, 10, 0};
  CHECK(schedule->rate(0, run) == 1e-3);
  CHECK(schedule->rate(5, run) == Approx(1e-3 / 4));
  CHECK(schedule->rate(10, run) == 0);
  CHECK(schedule->rate(50, run) == 0);
}

TEST_CASE("a run that is all warm-up has the base, and one without a base is refused") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<LearningRate> schedule(library);
  CHECK(schedule->rate(0, {1e-3, 0, 10}) == 1e-3);
  CHECK_THROWS_AS(schedule->rate(0, {std::nullopt, 10, 0}), UserError);
}
