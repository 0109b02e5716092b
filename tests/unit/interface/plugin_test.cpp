// The layout of what engine and plugins share by value, on this machine and with this compiler. tests/interface_layout
// holds every header to the ABI number; what is here must be the same for all of them, for gate one and two read it
// before they know a plugin's number, or is what a compiler could lay out in another way.
#include <strata/plugin.hpp>
#include <strata/plugin_context.hpp>

#include <cstddef>

#include "catch.hpp"

using namespace strata;

#define FROZEN(what, value)                                                                                           \
  do {                                                                                                                \
    INFO(#what                                                                                                        \
         " has changed: raise the ABI (python3 tests/interface_layout/interface_layout.py --raise), then this test"); \
    CHECK(static_cast<int>(what) == (value));                                                                         \
  } while (false)

TEST_CASE("the entry's layout is frozen") {
  FROZEN(sizeof(PluginEntry), 32);
  FROZEN(offsetof(PluginEntry, struct_size), 0);
  FROZEN(offsetof(PluginEntry, abi_major), 4);
  FROZEN(offsetof(PluginEntry, abi_minor), 8);
  FROZEN(offsetof(PluginEntry, manifest), 16);
  FROZEN(offsetof(PluginEntry, create), 24);
}

TEST_CASE("the layout of the structs that plugins receive is frozen") {
  FROZEN(sizeof(Plugin), 8);
  FROZEN(sizeof(PluginContext), 8);
  FROZEN(sizeof(OptionValues), 48);
  FROZEN(sizeof(OptionValue), 40);
  FROZEN(OptionValue(std::in_place_type<bool>).index(), 0);
  FROZEN(OptionValue(std::in_place_type<std::int64_t>).index(), 1);
  FROZEN(OptionValue(std::in_place_type<double>).index(), 2);
  FROZEN(OptionValue(std::in_place_type<std::string>).index(), 3);
  FROZEN(OptionValue(std::in_place_type<std::vector<std::int64_t>>).index(), 4);
  FROZEN(OptionValue(std::in_place_type<std::vector<double>>).index(), 5);
  FROZEN(sizeof(OptionSpec), 7 * sizeof(std::string) + sizeof(std::vector<std::string>));
}

TEST_CASE("kinds keep their numbers and words") {
  FROZEN(PluginKind::Device, 0);
  FROZEN(PluginKind::Communicator, 1);
  FROZEN(PluginKind::Partitioner, 2);
  FROZEN(PluginKind::PrecisionPolicy, 3);
  FROZEN(PluginKind::Scheduler, 4);
  FROZEN(PluginKind::OffloadDevice, 5);
  FROZEN(PluginKind::Optimizer, 6);
  FROZEN(PluginKind::Model, 7);
  FROZEN(PluginKind::DataSource, 8);
  FROZEN(PluginKind::LearningRate, 9);
  for (const char* const word : {"device", "communicator", "partitioner", "precision", "scheduler", "offload",
                                 "optimizer", "model", "data", "learning_rate"}) {
    const std::optional<PluginKind> kind = plugin_kind_from_string(word);
    REQUIRE(kind);
    CHECK(to_string(*kind) == word);
  }
  CHECK_FALSE(plugin_kind_from_string("Device"));
  CHECK_FALSE(plugin_kind_from_string(""));
}
