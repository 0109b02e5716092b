#include "plan/placement.hpp"

#include <set>

#include "catch.hpp"
#include "config/listing.hpp"

using namespace strata;
using namespace strata::plan;

namespace {

config::PluginChoice home(const std::string& slot, const std::string& name) {
  config::PluginChoice choice{slot, "offload", name, name, {}, {}};
  choice.options.set("path", std::string("/tmp/a:/tmp/b"));
  choice.given = {"path"};
  return choice;
}

config::RunConfig open_config(std::vector<std::string> given = {}) {
  config::RunConfig config;
  config.offload.automatic = true;
  config.offload.read_ahead = 4096;
  config.offload.update_elements = 1000;
  config.offload.parameters_ratio = config.offload.optimizer_ratio = config.offload.activations_ratio = 1.0;
  config.offload.disk = home("offload.disk", "disk");
  config.offload.given = std::move(given);
  config.scheduler = {"scheduler", "scheduler", "sequential", "sequential", {}, {}};
  return config;
}

std::string listed(const config::RunConfig& config, const std::string& path) {
  for (const config::Resolved& row : config::listing(config))
    if (row.path == path) return config::to_text(row.value) + ", " + row.origin;
  return "";
}

}  // namespace

TEST_CASE("placements are every combination once, the first without offload") {
  const Choices choices = choices_of(open_config());
  const std::vector<MemoryPlacement> all = coarse(choices, 1);
  // 3 x 3 of parameters and optimizer, with recomputation also 3 of activations, which are nothing without.
  CHECK(all.size() == 9 + 27);
  CHECK(all.front() == MemoryPlacement{});
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(!(all[i] == all[j]));
  for (const MemoryPlacement& one : all) CHECK(takes_no_less(one, lowest(choices)));
  for (const MemoryPlacement& one : all) CHECK(takes_no_less(all.front(), one));
}

TEST_CASE("homes set in the config are kept") {
  const Choices some = choices_of(open_config({"offload.optimizer.plugin", "activations.checkpoint"}));
  for (const MemoryPlacement& one : coarse(some, 1)) {
    CHECK(one.of(StateClass::Optimizer) == MemoryPlacement{}.of(StateClass::Optimizer));
    CHECK(!one.recompute);
  }
  CHECK(coarse(some, 1).size() == 9);
  Choices whole = choices_of(open_config());
  whole.whole_optimizer = true;
  for (const MemoryPlacement& one : coarse(whole, 1)) CHECK(one.of(StateClass::Optimizer).ratio == 1.0);
  Choices first = choices_of(open_config());
  first.homes.push_back(first.homes.front());
  first.homes_of_parameters = 1;
  CHECK(coarse(first, 1).size() == 3 * 5 + 3 * 5 * 5);
  for (const MemoryPlacement& one : coarse(first, 1)) CHECK(one.of(StateClass::Parameters).home < 1);
  CHECK(lowest(first).of(StateClass::Parameters).home == 0);
  CHECK(lowest(first).of(StateClass::Optimizer).home == 1);
}

TEST_CASE("finer placements have the found one's homes, in quarters") {
  const Choices choices = choices_of(open_config());
  MemoryPlacement found = lowest(choices);
  found.of(StateClass::Activations) = {};
  const std::vector<MemoryPlacement> all = finer(choices, found);
  CHECK(all.size() == 16);
  for (const MemoryPlacement& one : all) {
    CHECK(one.of(StateClass::Activations).home == -1);
    CHECK(one.of(StateClass::Parameters).home == 0);
    CHECK(one.recompute);
  }
  CHECK(finer(choices, MemoryPlacement{}).size() == 1);
}

TEST_CASE("only comparable placements are ordered by memory") {
  MemoryPlacement half, all;
  half.of(StateClass::Optimizer) = {0, 0.5};
  all.of(StateClass::Optimizer) = {0, 1.0};
  CHECK(takes_no_less(half, all));
  CHECK_FALSE(takes_no_less(all, half));
  MemoryPlacement elsewhere = all;
  elsewhere.of(StateClass::Optimizer).home = 1;
  CHECK_FALSE(takes_no_less(elsewhere, all));
  MemoryPlacement recomputed = all;
  recomputed.recompute = true;
  CHECK(takes_no_less(all, recomputed));
  CHECK_FALSE(takes_no_less(recomputed, all));
  MemoryPlacement other_order = half;
  other_order.scheduler = 1;
  CHECK_FALSE(takes_no_less(other_order, all));
}

TEST_CASE("a placed config lists its keys, as rows and as lines for a file") {
  const config::RunConfig config = open_config();
  const Choices choices = choices_of(config);
  MemoryPlacement placement = lowest(choices);
  placement.of(StateClass::Optimizer).ratio = 0.25;
  placement.of(StateClass::Activations) = {};
  placement.staging_divisor = 4;
  const config::RunConfig run = placed(config, choices, placement);
  CHECK_FALSE(run.offload.automatic);
  CHECK(run.offload.parameters->slot == "offload.parameters");
  CHECK(run.offload.optimizer_ratio == 0.25);
  CHECK_FALSE(run.offload.activations.has_value());
  CHECK(run.recompute.all);
  CHECK(run.offload.read_ahead == 1024);
  CHECK(run.offload.update_elements == 250);
  CHECK(listed(run, "offload.optimizer_ratio") == "0.25, offload: auto");
  CHECK(listed(run, "offload.parameters.disk.path") == "/tmp/a:/tmp/b, offload: auto");
  CHECK(listed(run, "offload.automatic") == "false, offload: auto");
  CHECK(as_yaml(run, choices) ==
        std::vector<std::string>{
            "activations: {checkpoint: all}",
            "offload: {parameters: {plugin: disk, path: \"/tmp/a:/tmp/b\"}, optimizer: {plugin: disk, path: "
            "\"/tmp/a:/tmp/b\"}, optimizer_ratio: 0.25, activations: none, read_ahead: 1024, update_elements: 250}"});
}
