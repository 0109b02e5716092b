#include "runtime/largest_micro_batch.hpp"

#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <algorithm>
#include <set>
#include <string>

#include "config/size.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "runtime/dry_run.hpp"

namespace strata::runtime {

namespace {

// The first rank of every pipeline stage: ranks that differ in the data they see hold the same, to a padding.
std::set<int> different_ranks(const config::RunConfig& config) {
  const MeshShape mesh{static_cast<int>(config.parallel.pipeline), static_cast<int>(config.parallel.data),
                       static_cast<int>(config.parallel.tensor)};
  std::set<int> ranks;
  for (int stage = 0; stage < mesh.pipeline; ++stage) ranks.insert(rank_of(mesh, {stage, 0, 0}));
  return ranks;
}

std::int64_t bytes_of(const DryRun& run) {
  std::int64_t bytes = run.peak_total;
  for (int category = 0; category < category_count; ++category)
    bytes += run.ledger.peak[static_cast<std::size_t>(category)][static_cast<std::size_t>(Tier::Host)];
  return bytes;
}

}  // namespace

MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t given, plugin_host::PluginRegistry& registry,
                           int local_ranks) {
  if (given > 0) return {given, "memory_budget"};
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Device, config.device.plugin), config.device.options);
  const std::unique_ptr<Device> device = registry.create<Device>(config.device.plugin, *context);
  const bool host = device->select(0).is_cpu();
  const std::int64_t available = device->memory().available;
  const std::int64_t devices = host ? 1 : std::max(device->count(), 1);
  const std::int64_t sharing = (std::max(local_ranks, 1) + devices - 1) / devices;
  return {available / 5 * 4 / sharing, "0.8 of the " + config::format_bytes(available) + " that " +
                                           (host ? "the host" : "the device") + " has left" +
                                           (sharing > 1 ? ", shared by " + std::to_string(sharing) + " ranks" : "")};
}

LargestMicroBatch largest_micro_batch(config::RunConfig config, plugin_host::PluginRegistry& registry,
                                      const MemoryBudget& budget, std::int64_t most) {
  const auto bytes_with = [&](std::int64_t micro_batch) {
    config.train.micro_batch = micro_batch;
    config.train.global_batch = micro_batch * config.train.accumulation * config.parallel.data;
    std::int64_t bytes = 0;
    for (const int rank : different_ranks(config)) bytes = std::max(bytes, bytes_of(dry_run(config, registry, rank)));
    return bytes;
  };
  LargestMicroBatch found{1, bytes_with(1)};
  if (found.bytes > budget.bytes)
    throw UserError("a micro-batch of one sample takes " + config::format_bytes(found.bytes) +
                    " a rank, and there are " + config::format_bytes(budget.bytes) + " (" + budget.origin +
                    "); use more ranks, a higher stage, activations.checkpoint=all, a shorter model.seq_len, or "
                    "memory_budget=SIZE");
  std::int64_t too_large = most + 1;
  while (found.micro_batch + 1 < too_large) {
    const bool bounded = too_large <= most;
    const std::int64_t next =
        bounded ? found.micro_batch + (too_large - found.micro_batch) / 2 : std::min(found.micro_batch * 2, most);
    const std::int64_t bytes = bytes_with(next);
    if (bytes <= budget.bytes)
      found = {next, bytes};
    else
      too_large = next;
  }
  return found;
}

}  // namespace strata::runtime
