#include "plugins/capability_rules.hpp"

#include <strata/error.hpp>

#include "catch.hpp"
#include "error_of.hpp"

using namespace strata;
using namespace strata::plugin_host;

namespace {

using Capabilities = std::vector<Capability>;

// What is said of a run whose model is "m", scheduler "s" and partitioner "p", with these capabilities; "": nothing.
std::string verdict(const Capabilities& model, const Capabilities& scheduler, const Capabilities& partitioner,
                    config::RunConfig config = {}) {
  PluginRegistry registry({});
  const auto add = [&](PluginKind kind, const std::string& name, const Capabilities& capabilities) {
    registry.register_plugin(
        kind, name, [](PluginContext&) { return std::unique_ptr<Plugin>(); }, {}, capabilities);
  };
  add(PluginKind::Model, config.model.plugin.plugin = "m", model);
  add(PluginKind::Scheduler, config.scheduler.plugin = "s", scheduler);
  add(PluginKind::Partitioner, config.partitioner.plugin = "p", partitioner);
  return error_of<UserError>([&] { check_capabilities(config, registry); });
}

const std::string allowed;

}  // namespace

TEST_CASE("every capability's name leads back to it") {
  for (std::size_t i = 0; i < capabilities.size(); ++i) {
    CHECK(static_cast<std::size_t>(capabilities[i].capability) == i);
    CHECK(capability_from_string(capabilities[i].name) == capabilities[i].capability);
  }
  CHECK_FALSE(capability_from_string("split_backward"));
  CHECK(are_capabilities_of("model", "splittable_backward,tensor_parallel"));
  CHECK(are_capabilities_of("partitioner", ""));
  CHECK_FALSE(are_capabilities_of("partitioner", "releases_parameters,"));
  CHECK_FALSE(are_capabilities_of("partitioner", "splits_backward"));
  CHECK_FALSE(are_capabilities_of("scheduler", "releases_parameters"));
}

TEST_CASE("a scheduler that splits backward needs a model that can be split") {
  CHECK(verdict({Capability::SplittableBackward}, {Capability::SplitsBackward}, {}) == allowed);
  CHECK(verdict({}, {}, {}) == allowed);
  CHECK(
      verdict({}, {Capability::SplitsBackward}, {}) ==
      "scheduler/s and model/m cannot run together: scheduler/s computes the gradients of inputs and of weights "
      "separately, but model/m does not declare splittable_backward; choose a scheduler that does not split backward, "
      "or a model whose weights are linear_only");
}

TEST_CASE("parameters leave the device where the partitioner releases them") {
  config::RunConfig config;
  config.offload.parameters.emplace().plugin = "nvme";
  CHECK(verdict({}, {}, {Capability::ReleasesParameters}, config) == allowed);
  CHECK_THAT(verdict({}, {}, {}, config), Contains("offload.parameters: nvme holds parameters") &&
                                              Contains("partitioner/p keeps them on the device") &&
                                              Contains("that declares releases_parameters"));
}

TEST_CASE("ranks share the layers of a model that says so") {
  config::RunConfig config;
  config.parallel.mesh.set(Axis::Tensor, 2);
  CHECK(verdict({Capability::TensorParallel}, {}, {}, config) == allowed);
  CHECK_THAT(verdict({}, {}, {}, config), Contains("parallel.tensor is 2, and model/m does not share its layers") &&
                                              Contains("that declares tensor_parallel"));
}
