// This rank's side of the run's key-value store, through which ranks find each other before any group is connected.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/board.hpp"
#include "group/fact.hpp"
#include "group/launch_place.hpp"

namespace strata::group {

class Rendezvous;

// This rank's connections to the store and its side of the board. Waits have no fixed timeout while a needed rank
// computes; see board.hpp. A silent store ends them, see store_client.hpp.
class RunStore {
 public:
  // Connects to the store at the address in `place`, and joins the board. Rank 0 serves the store unless the launcher
  // does; a run of one rank keeps it in memory. Raises this process's limit of open files. Throws EnvironmentError if
  // the store cannot be reached or served within `timeout`, or if another process has this rank.
  RunStore(const LaunchPlace& place, std::chrono::milliseconds timeout);
  ~RunStore();
  RunStore(const RunStore&) = delete;
  RunStore& operator=(const RunStore&) = delete;

  // Waits until all members have reached `place`; throws EnvironmentError naming those that have not. Use each place
  // once: "connect group data". [collective over `members`]
  void meet(const std::string& place, const std::vector<int>& members);
  // Compares `text`, whose parts end with semicolons, with rank 0's. If it differs, throws EnvironmentError with the
  // first different part and the remedy, on rank 0 and on the ranks that differ. `what` is used once and names the
  // text: "the loaded plugins". [collective over the run]
  void agree(const std::string& what, const std::string& text,
             const std::string& remedy = "start all ranks from the same files");
  // Compares a list of facts with rank 0's, in an order that is the same on all ranks. [collective over the run]
  void agree(const std::string& what, const std::vector<Fact>& facts, const std::string& remedy);

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  Board& board() { return *board_; }
  // Returns the local address for connections to other ranks.
  const std::string& interface_address() const { return interface_address_; }

 private:
  void connect(const LaunchPlace& place, std::chrono::milliseconds timeout);
  void agreed();

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Board> board_;
  std::optional<Board::Waiting> waiting_;  // set during a long wait of the rendezvous
  std::unique_ptr<Rendezvous> rendezvous_;
  std::string interface_address_;
  int rank_;
  int size_;
};

}  // namespace strata::group
