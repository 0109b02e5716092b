#pragma once
#include <vector>

namespace strata::gloo_communicator {

// The sockets of this process that accept connections. Throws EnvironmentError if /proc does not show them.
std::vector<int> listening_sockets();

// [Note: Closing a listener] Once all ranks are connected the port is of no use, and gloo ends the process if a
// connection cannot be accepted. Gloo keeps the socket in its event loop until the device is destroyed, and
// offers no way to close it. Its descriptor is therefore given to another, unconnected socket: that closes the port. A
// loop that is just accepting finds no connection there. Throws EnvironmentError.
void close_listener(int socket);

}  // namespace strata::gloo_communicator
