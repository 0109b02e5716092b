// Serves the run's store: a map of keys in memory, in the protocol of c10d's TCPStore (store_connection.hpp).
//
// [Note: Strangers] Any program that reaches the port may connect. The server answers only connections that send
// the run's name, which the launcher draws at random if it starts the ranks itself, and closes others after some
// seconds. It stores at most a few bytes of them. The protocol is neither encrypted nor protected against
// tampering.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace strata::group {

class ListeningSocket;

class StoreServer {
 public:
  // Takes over the socket and serves it on a separate thread until the server is destroyed. Throws EnvironmentError.
  StoreServer(ListeningSocket& socket, const std::string& run);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const { return port_; }

 private:
  int port_ = 0;
  int wake_ = -1;  // event descriptor that wakes the thread
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace strata::group
