// Gate two: loading a plugin's file and checking that what was loaded is what gate one read.
#pragma once
#include <strata/plugin.hpp>

#include <string>

#include "plugin_host/manifest.hpp"

namespace strata::plugin_host {

// Loads the library and returns its entry, once per path: later calls return the same. Throws DamagedFile, whose text
// does not name the file, when it cannot be loaded, exports no entry, or its entry and `manifest` disagree. [Note:
// Never unloaded] libtorch keeps addresses of code that touched it (operator registrations, deleters of storage, thread
// pools), so closing a library crashes at some later time, often at exit. The list of libraries is therefore never
// destroyed. Not thread-safe.
const PluginEntry& load_library(const std::string& path, const Manifest& manifest);

}  // namespace strata::plugin_host
