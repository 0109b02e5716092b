#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/partitioner.hpp>
#include <strata/plugin_context.hpp>

// The key functions of the kinds that have no other source: one home for each class's virtual table.
namespace strata {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::Forward: return "forward";
    case Phase::Backward: return "backward";
    case Phase::Recompute: return "recompute";
  }
  throw Bug("unknown phase");
}

PluginContext::~PluginContext() = default;
Event::~Event() = default;
Device::~Device() = default;
PartitionContext::~PartitionContext() = default;
Partitioner::~Partitioner() = default;

}  // namespace strata
