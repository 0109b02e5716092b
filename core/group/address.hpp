#pragma once
#include <chrono>
#include <string>

namespace strata::launch {

// The local address from which this host would send to `host`: "127.0.0.1" if `host` is a loopback name. Sends nothing.
// Throws EnvironmentError if the name does not resolve or there is no route.
std::string address_towards(const std::string& host);

// Waits until a server listens at host:port; returns false if none does within `timeout`. Throws EnvironmentError if
// the name does not resolve.
bool answers_within(const std::string& host, int port, std::chrono::milliseconds timeout);

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

}  // namespace strata::launch
