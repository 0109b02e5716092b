// The run's key-value store: how ranks find each other before any group is connected. It is c10d's TCPStore.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/board.hpp"
#include "group/launch_place.hpp"

namespace strata::runtime {

// Serves a store on a free port of the loopback address until it is destroyed: what `--nproc` starts for its ranks.
class StoreServer {
 public:
  StoreServer();
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const { return port_; }

 private:
  struct Server;
  std::unique_ptr<Server> server_;
  int port_ = 0;
};

// This rank's connection to the store, and its side of the board. A wait lasts while a rank that it needs computes; see
// board.hpp.
class RunStore {
 public:
  // Connects to the store that `place` names; rank 0 serves it unless the launcher does, and a run of one rank keeps it
  // in memory. Throws EnvironmentError when it cannot be reached or served within `timeout`.
  RunStore(const launch::LaunchPlace& place, std::chrono::milliseconds timeout);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  void set(const std::string& key, const std::string& value);
  // [collective over `members`] Waits until all have come to `place`; throws EnvironmentError naming those who have
  // not. Each place is used once: "connect group data".
  void meet(const std::string& place, const std::vector<int>& members);
  // [collective over the run] Throws EnvironmentError naming a rank whose `text` differs from rank 0's, on the ranks
  // that differ and on rank 0. `what` is used once and says what is compared: "the loaded plugins".
  void agree(const std::string& what, const std::string& text);

  struct Connection;  // c10d's side of it, for the group factory
  Connection& connection() { return *connection_; }
  Board& board() { return *board_; }

 private:
  void wait_for(const std::string& place, const std::vector<int>& members,
                const std::function<std::string(int)>& key_of);

  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Board> board_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
};

}  // namespace strata::runtime
