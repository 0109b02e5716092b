#pragma once
#include <string>

namespace strata::stage {

// A plugin with its name in messages.
template <typename Kind>
struct NamedPlugin {
  Kind* plugin = nullptr;
  std::string name;  // "partitioner/zero3"
  Kind* operator->() const { return plugin; }
  Kind& operator*() const { return *plugin; }
};

}  // namespace strata::stage
