// A plugin opened without the engine: what it says of itself, and what is refused.
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>
#include <strata/scheduler.hpp>

#include "catch.hpp"

using namespace strata;
using fakes::LoadedPlugin;
using fakes::PluginLibrary;

namespace {
const std::string folder = PLUGIN_FOLDER;
const std::string sequential = folder + "/libstrata_scheduler_sequential.so";
const std::string zero3 = folder + "/libstrata_partitioner_zero3.so";
}  // namespace

TEST_CASE("a library knows its plugin's name, kind and options") {
  const PluginLibrary library(zero3);
  CHECK(library.name() == "partitioner/zero3");
  CHECK(library.kind() == PluginKind::Partitioner);
  CHECK(library.entry().abi_major == STRATA_ABI_MAJOR);
  REQUIRE_FALSE(library.options().empty());
  CHECK(library.options().front().name == "prefetch_layers");
  CHECK(PluginLibrary(sequential).options().empty());
}

TEST_CASE("options are those of a config: defaults, and texts that keep the schema") {
  const PluginLibrary library(zero3);
  CHECK(library.values().integer("prefetch_layers") == 1);
  const OptionValues values = library.values({{"prefetch_layers", "3"}, {"overlap_comm", "false"}});
  CHECK(values.integer("prefetch_layers") == 3);
  CHECK_FALSE(values.boolean("overlap_comm"));
  CHECK(values.text("gradient_reduction") == "each_micro_batch");
  CHECK_THROWS_WITH(library.values({{"prefetch_layer", "3"}}), "partitioner/zero3 has no option 'prefetch_layer'");
  CHECK_THROWS_AS(library.values({{"prefetch_layers", "65"}}), UserError);
  CHECK_THROWS_AS(library.values({{"overlap_comm", "perhaps"}}), UserError);
}

TEST_CASE("an instance sees its name, place and options, and is shut down once") {
  const PluginLibrary library(sequential);
  LoadedPlugin<Scheduler> loaded(library, {}, 1, {{Axis::Pipeline, 2}, {Axis::Data, 2}});
  CHECK(loaded.context().plugin_name() == "scheduler/sequential");
  CHECK(loaded.context().rank() == 1);
  CHECK(loaded.context().mesh().size(Axis::Pipeline) == 2);
  CHECK(loaded.context().logged().empty());
  CHECK(loaded->order({1, 1, 1}, 0).size() == 2);
  LoadedPlugin<Scheduler> moved(std::move(loaded));
  CHECK(moved->order({1, 1, 1}, 0).size() == 2);
  moved.shutdown();
}

TEST_CASE("a file that is not a plugin, or not the expected one, is refused") {
  CHECK_THROWS_WITH(PluginLibrary(folder + "/nothing.so"), Catch::Contains("nothing.so"));
  CHECK_THROWS_AS(PluginLibrary(folder + "/nothing.so"), EnvironmentError);
  CHECK_THROWS_WITH(PluginLibrary(NO_PLUGIN), Catch::Contains("exports no strata_plugin_entry_v1"));
  CHECK_THROWS_AS(PluginLibrary(NO_ENTRY), EnvironmentError);
  CHECK_THROWS_WITH(PluginLibrary(UNKNOWN_KIND), Catch::Contains("unknown kind"));
  CHECK_THROWS_WITH(LoadedPlugin<Optimizer>(PluginLibrary(sequential)),
                    Catch::Contains("scheduler/sequential is of another kind"));
  CHECK_THROWS_AS(LoadedPlugin<Partitioner>(PluginLibrary(sequential)), Bug);
}
