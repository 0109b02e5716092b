#include "plugin_host/capability_rules.hpp"

#include <strata/error.hpp>

#include "catch.hpp"
#include "error_of.hpp"

using namespace strata;
using namespace strata::plugin_host;

namespace {

Manifest plugin(PluginKind kind, const std::string& name, std::vector<Capability> capabilities = {}) {
  Manifest manifest;
  manifest.kind = kind;
  manifest.name = name;
  manifest.capabilities = std::move(capabilities);
  return manifest;
}

std::string verdict(const Manifest& first, const Manifest& second) {
  return error_of<UserError>([&] { check_capabilities({&first, &second}); });
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
  const Manifest scheduler = plugin(PluginKind::Scheduler, "s", {Capability::SplitsBackward});
  CHECK(verdict(scheduler, plugin(PluginKind::Model, "m", {Capability::SplittableBackward})) == allowed);
  CHECK(verdict(plugin(PluginKind::Scheduler, "s"), plugin(PluginKind::Model, "m")) == allowed);
  CHECK(
      verdict(scheduler, plugin(PluginKind::Model, "m")) ==
      "scheduler/s and model/m cannot run together: scheduler/s computes the gradients of inputs and of weights "
      "separately, but model/m does not declare splittable_backward; choose a scheduler that does not split backward, "
      "or a model whose weights are linear_only");
}

TEST_CASE("every rule is tested above") {
  CHECK(capability_rules().size() == 1);
}
