// The run's key-value store (c10d's TCPStore), through which ranks find each other before any group is connected.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/board.hpp"
#include "group/fact.hpp"
#include "group/launch_place.hpp"

namespace strata::runtime {

// Serves a store on a free port of the loopback address until it is destroyed. `--nproc` starts one for its ranks.
class StoreServer {
 public:
  StoreServer();
  ~StoreServer();
  int port() const { return port_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  int port_ = 0;
};

// This rank's connection to the store and its side of the board. Waits have no fixed timeout while a needed rank
// computes; see board.hpp.
class RunStore {
 public:
  // Connects to the store at the address in `place`. Rank 0 serves it unless the launcher does; a run of one rank keeps
  // it in memory. Throws EnvironmentError if it cannot be reached or served within `timeout`.
  RunStore(const launch::LaunchPlace& place, std::chrono::milliseconds timeout);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  void set(const std::string& key, const std::string& value);
  // [collective over `members`] Waits until all members have reached `place`; throws EnvironmentError naming those that
  // have not. Use each place once: "connect group data".
  void meet(const std::string& place, const std::vector<int>& members);
  // [collective over the run] Compares `text`, whose parts end with semicolons, with rank 0's. If it differs, throws
  // EnvironmentError with the first part that does and the remedy, on rank 0 and on the ranks that differ. `what` is
  // used once and names what is compared: "the loaded plugins".
  void agree(const std::string& what, const std::string& text,
             const std::string& remedy = "start all ranks from the same files");
  // The same for a list of facts, in an order that is the same on all ranks.
  void agree(const std::string& what, const std::vector<Fact>& facts, const std::string& remedy);

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  Board& board() { return *board_; }

 private:
  void wait_for(const std::string& place, const std::vector<int>& members,
                const std::function<std::string(int)>& key_of);
  void compare(const std::string& what, const std::string& text, const std::string& remedy,
               const std::function<std::string(int other_rank, const std::string& other)>& find_difference);

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Board> board_;
  int rank_;
  int size_;
};

}  // namespace strata::runtime
