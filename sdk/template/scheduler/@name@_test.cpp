// @name@: a schedule is integers, so its test is a list.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/scheduler.hpp>

#include "catch.hpp"

using namespace strata;

TEST_CASE("all forwards, then all backwards") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Scheduler> scheduler(library);
  CHECK(scheduler->order({1, 1, 2}, 0) == parse_compute_order("F0.0 F0.1 B0.0 B0.1"));
  CHECK(scheduler->order({3, 1, 2}, 1) == parse_compute_order("F1.0 F1.1 B1.0 B1.1"));
}

TEST_CASE("stages hold all layers in turn, and chunks that it cannot run are refused") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Scheduler> scheduler(library);
  const std::vector<LayerCost> layers(4, {100, 1, 1, 1, 8, 100});
  const Placement placement = scheduler->place(layers, {2, 1, 4});
  CHECK(placement.stage_of_chunk == std::vector<int>{0, 1});
  CHECK(placement.layers_of_chunk == std::vector<std::pair<int, int>>{{0, 2}, {2, 4}});
  CHECK_THROWS_AS(scheduler->order({2, 2, 4}, 0), UserError);
}
