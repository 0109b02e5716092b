// Serves the run's store: a map of keys in memory, in the protocol of c10d's TCPStore (store_connection.hpp).
//
// [Note: Strangers] Whoever reaches the port may connect. The server answers only connections that greet it with the
// run's name, which the launcher draws at random where it starts the ranks itself, and closes others after some
// seconds. It keeps at most a few bytes of them. The protocol is neither encrypted nor protected against changes on the
// way.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace strata::launch {
class ListeningSocket;
}

namespace strata::runtime {

class StoreServer {
 public:
  // Takes the socket over and serves it on a thread of its own until it is destroyed. Throws EnvironmentError.
  StoreServer(launch::ListeningSocket& socket, const std::string& run);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const { return port_; }

 private:
  int port_ = 0;
  int wake_ = -1;  // an event descriptor that wakes the thread
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace strata::runtime
