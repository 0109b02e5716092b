#pragma once
#include <chrono>
#include <string>

namespace strata::launch {

// The address this host would send from to reach `host`: "127.0.0.1" for the host itself under a loopback name. Sends
// nothing. Throws EnvironmentError when the name does not resolve or no route leads there.
std::string address_towards(const std::string& host);

// Waits until something listens at host:port; false when nothing does within `timeout`. Throws EnvironmentError for a
// name that does not resolve.
bool answers_within(const std::string& host, int port, std::chrono::milliseconds timeout);

// A TCP socket that listens on one address of this host. Port 0 takes a free one. Throws EnvironmentError saying what
// is in the way.
class ListeningSocket {
 public:
  ListeningSocket(const std::string& host, int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  int port() const { return port_; }
  // The descriptor, now the caller's to close.
  int release();

 private:
  int handle_ = -1;
  int port_ = 0;
};

}  // namespace strata::launch
