#include "plan/memory_budget.hpp"

#include <strata/device.hpp>

#include <algorithm>
#include <memory>

#include "plan/dry_run.hpp"
#include "plugins/engine_plugins.hpp"
#include "text/size.hpp"

namespace strata::plan {

MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t given, plugins::PluginRegistry& registry,
                           int local_ranks) {
  if (given > 0) return {given, "memory_budget"};
  const std::unique_ptr<PluginContext> context =
      plugins::asking_context(registry.find(PluginKind::Device, config.device.plugin), config.device.options);
  const std::unique_ptr<Device> device = registry.create<Device>(config.device.plugin, *context);
  const bool host = device->select(0).is_cpu();
  const std::int64_t available = device->memory().available;
  const std::int64_t devices = host ? 1 : std::max(device->count(), 1);
  const std::int64_t sharing = (std::max(local_ranks, 1) + devices - 1) / devices;
  return {available / 5 * 4 / sharing, "0.8 of the " + text::format_bytes(available) + " that " +
                                           (host ? "the host" : "the device") + " has left" +
                                           (sharing > 1 ? ", shared by " + std::to_string(sharing) + " ranks" : "")};
}

std::int64_t bytes_needed(const config::RunConfig& config, plugins::PluginRegistry& registry) {
  // The first rank of each pipeline stage; what is left over in a division makes the others' parts smaller.
  const std::int64_t ranks_of_stage = config.world_size / config.parallel.size(Axis::Pipeline);
  std::int64_t bytes = 0;
  for (std::int64_t rank = 0; rank < config.world_size; rank += ranks_of_stage)
    bytes = std::max(bytes, dry_run(config, registry, static_cast<int>(rank)).needed);
  return bytes;
}

}  // namespace strata::plan
