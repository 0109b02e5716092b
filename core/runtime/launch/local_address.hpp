// defines: address_towards
#pragma once
#include <string>

namespace strata::launch {

// The address this host would send from to reach `host`: "127.0.0.1" for the host itself under a loopback name. Sends nothing.
// Throws EnvironmentError when the name does not resolve or no route leads there.
std::string address_towards(const std::string& host);

}  // namespace strata::launch
