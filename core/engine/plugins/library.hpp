// Second gate: loads a plugin's file and checks that it matches the manifest that the first gate read.
#pragma once
#include <strata/plugin.hpp>

#include <string>

#include "plugins/manifest.hpp"

namespace strata::plugins {

// Loads the library and returns its entry; later calls with the same path return the same entry. Throws DamagedFile
// (its text does not name the file) if it cannot be loaded, exports no entry, or its entry and `manifest` differ.
// [Note: Never unloaded] libtorch keeps addresses of code that used it (operator registrations, deleters of storage,
// thread pools), so closing a library crashes later, often at exit. The list of libraries is therefore never destroyed.
// Not thread-safe.
const PluginEntry& load_library(const std::string& path, const Manifest& manifest);

}  // namespace strata::plugins
