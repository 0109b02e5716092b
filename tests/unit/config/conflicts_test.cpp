#include "config/conflicts.hpp"

#include <algorithm>
#include <set>

#include "catch.hpp"
#include "outcome.hpp"

namespace strata::config {
namespace {

RunConfig of_plugins() {
  RunConfig config;
  config.model.plugin.kind = "model", config.model.plugin.name = "m";
  config.scheduler.kind = "scheduler", config.scheduler.name = "s";
  config.partitioner.kind = "partitioner", config.partitioner.name = "p";
  config.recompute.all = true;
  return config;
}

std::string said(const RunConfig& config, const Answers* answers = nullptr) {
  return error_of<UserError>([&] { check_conflicts({config, answers}); });
}

const std::string allowed;

}  // namespace

TEST_CASE("a refusal names both features, the reason and both remedies") {
  RunConfig config = of_plugins();
  CHECK(said(config) == allowed);
  config.scheduler.capabilities = {Capability::SplitsBackward};
  CHECK(said(config) ==
        "scheduler/s computes the gradients of inputs and of weights separately, and model/m does not declare "
        "splittable_backward: such a model computes the gradients of inputs and weights together; choose a scheduler "
        "that does not split the backward, or choose a model whose weights are linear_only");
  config.model.plugin.capabilities = {Capability::SplittableBackward};
  CHECK(said(config) == allowed);
}

TEST_CASE("parameters leave the device where the partitioner releases them") {
  RunConfig config = of_plugins();
  config.offload.parameters.emplace().plugin = "nvme";
  CHECK_THAT(said(config),
             Contains("offload.parameters is set, and partitioner/p keeps parameters on the device") &&
                 Contains("leave offload.parameters out, or choose a partitioner that declares releases_parameters"));
  config.partitioner.capabilities = {Capability::ReleasesParameters};
  CHECK(said(config) == allowed);
}

TEST_CASE("ranks share the layers of a model that says so") {
  RunConfig config = of_plugins();
  config.parallel.mesh.set(Axis::Tensor, 2);
  CHECK_THAT(said(config), Contains("parallel.tensor is 2, and model/m does not share its layers") &&
                               Contains("that declares tensor_parallel"));
  config.model.plugin.capabilities = {Capability::TensorParallel};
  CHECK(said(config) == allowed);
}

TEST_CASE("a conflict of training alone is judged once its plugins are known") {
  RunConfig config = of_plugins();
  config.step_policy = StepPolicy::Speculative;
  config.offload.optimizer.emplace();
  CHECK(said(config) == allowed);
  const Answers answers;
  CHECK_THAT(said(config, &answers), Contains("offload.optimizer is set, and step_policy is speculative"));
}

TEST_CASE("a refusal names the place of the key that the config sets") {
  CHECK(error("activations: {partition: true}\n").starts_with("t.yaml:5:26: activations.partition is true, and "));
  CHECK(error("", {"offload.activations.plugin=nvme"}) ==
        "--set: offload.activations is set, and activations.checkpoint is none: only the inputs of recomputed layers "
        "leave the device; leave offload.activations out, or set activations.checkpoint: all, or name layers");
}

TEST_CASE("the table has each pair once, and no pair of a feature with itself") {
  std::set<std::set<std::string_view>> pairs;
  for (const Conflict& conflict : conflicts()) {
    CAPTURE(conflict.first.name, conflict.second.name);
    const std::set<std::string_view> pair{conflict.first.name, conflict.second.name};
    CHECK(pair.size() == 2);
    CHECK(pairs.insert(pair).second);
  }
}

}  // namespace strata::config
