#include <strata/device.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>

// The key functions of the kinds that have no other source: one home for each class's virtual table.
namespace strata {

PluginContext::~PluginContext() = default;
Event::~Event() = default;
Device::~Device() = default;
bool Device::page_lock(Span /*memory*/) {
  return true;
}
void Device::page_unlock(Span /*memory*/) {}
RunContext::~RunContext() = default;
PartitionContext::~PartitionContext() = default;
Partitioner::~Partitioner() = default;

}  // namespace strata
