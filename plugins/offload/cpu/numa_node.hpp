#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace strata::offload_cpu {

// The NUMA node to which all processors that this process may run on belong. Nothing where they belong to several, or
// the machine has one node. `root` is prefixed to /sys.
std::optional<int> own_node(const std::string& root = "");

// Pages of this memory that are first written from now on come from the node, as long as it has any. Returns the
// system's refusal; empty: none. `memory` begins at a page.
std::string prefer_node(void* memory, std::size_t bytes, int node);

}  // namespace strata::offload_cpu
