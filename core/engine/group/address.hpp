#pragma once
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace strata::group {

// Socket address with its port.
class SocketAddress {
 public:
  SocketAddress(const sockaddr* address, socklen_t length);
  int family() const { return address_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return length_; }
  // Returns "10.0.0.1", without the port.
  std::string text() const;

 private:
  sockaddr_storage address_{};
  socklen_t length_ = 0;
};

// Returns the addresses of `host` with `port`, or none and the reason. Waits for slow name servers until `deadline`.
std::pair<std::vector<SocketAddress>, std::string> resolve_until(const std::string& host, int port,
                                                                 std::chrono::steady_clock::time_point deadline);

// Returns the address of this end of a socket, without the port; empty if it has none.
std::string local_address_of(int socket);

// True for an address or name that no other host can reach.
bool is_loopback(const std::string& address);

// Returns the local address from which this host would send to `host`: "127.0.0.1" if `host` is a loopback name. Sends
// nothing. Empty if the name does not resolve (yet). Throws EnvironmentError if there is no route.
std::string address_towards(const std::string& host);

// A TCP socket that listens on one address of this host. Port 0 picks a free port. Throws EnvironmentError with the
// reason.
class ListeningSocket {
 public:
  ListeningSocket(const std::string& host, int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  int port() const { return port_; }
  // Returns the descriptor; the caller must close it.
  int release();

 private:
  int handle_ = -1;
  int port_ = 0;
};

}  // namespace strata::group
