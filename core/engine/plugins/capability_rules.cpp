#include "plugins/capability_rules.hpp"

#include <strata/error.hpp>

#include <algorithm>

namespace strata::plugin_host {

void check_capabilities(const config::RunConfig& config, PluginRegistry& registry) {
  using enum Capability;
  const auto manifest_of = [&](PluginKind kind, const config::PluginChoice& choice) -> const Manifest& {
    return registry.find(kind, choice.plugin).manifest;
  };
  const auto can = [](const Manifest& plugin, Capability capability) {
    return std::ranges::find(plugin.capabilities, capability) != plugin.capabilities.end();
  };
  const auto named = [](Capability capability) { return std::string(to_string(capability)); };
  const Manifest& model = manifest_of(PluginKind::Model, config.model.plugin);
  const Manifest& scheduler = manifest_of(PluginKind::Scheduler, config.scheduler);
  const Manifest& partitioner = manifest_of(PluginKind::Partitioner, config.partitioner);
  if (can(scheduler, SplitsBackward) && !can(model, SplittableBackward))
    throw UserError(full_name(scheduler) + " and " + full_name(model) + " cannot run together: " +
                    full_name(scheduler) + " computes the gradients of inputs and of weights separately, but " +
                    full_name(model) + " does not declare " + named(SplittableBackward) +
                    "; choose a scheduler that does not split backward, or a model whose weights are linear_only");
  if (config.offload.parameters && !can(partitioner, ReleasesParameters))
    throw UserError(config.offload.parameters->place,
                    "offload.parameters: " + config.offload.parameters->plugin +
                        " holds parameters between their uses, and " + full_name(partitioner) +
                        " keeps them on the device; leave it out, or choose a partitioner that declares " +
                        named(ReleasesParameters));
  if (config.parallel.size(Axis::Tensor) > 1 && !can(model, TensorParallel))
    throw UserError(
        "parallel.tensor is " + std::to_string(config.parallel.size(Axis::Tensor)) + ", and " + full_name(model) +
        " does not share its layers over ranks; set it to 1, or choose a model that declares " + named(TensorParallel));
}

}  // namespace strata::plugin_host
