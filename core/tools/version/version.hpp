// Version of this Strata.
#pragma once
#include <string>

namespace strata::version {

// Returns "0.1.0, commit 1a2b3c4d5e6f, Release, libtorch 2.11.0, plugin ABI 2.20"; without the commit if built from an
// archive.
std::string text();

}  // namespace strata::version
