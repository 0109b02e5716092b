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
    throw UserError(
        "{} and {} cannot run together: {} computes the gradients of inputs and of weights separately, but {} does not "
        "declare {}; choose a scheduler that does not split backward, or a model whose weights are linear_only",
        full_name(scheduler), full_name(model), full_name(scheduler), full_name(model), named(SplittableBackward));
  if (config.offload.parameters && !can(partitioner, ReleasesParameters))
    throw UserError(config.offload.parameters->place,
                    "offload.parameters: {} holds parameters between their uses, and {} keeps them on the device; "
                    "leave it out, or choose a partitioner that declares {}",
                    config.offload.parameters->plugin, full_name(partitioner), named(ReleasesParameters));
  if (config.parallel.size(Axis::Tensor) > 1 && !can(model, TensorParallel))
    throw UserError(
        "parallel.tensor is {}, and {} does not share its layers over ranks; set it to 1, or choose a model that "
        "declares {}",
        config.parallel.size(Axis::Tensor), full_name(model), named(TensorParallel));
}

}  // namespace strata::plugin_host
