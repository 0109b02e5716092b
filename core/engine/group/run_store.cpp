#include "group/run_store.hpp"

#include <strata/error.hpp>

#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "group/address.hpp"
#include "group/open_files.hpp"
#include "group/rendezvous.hpp"
#include "group/store_client.hpp"
#include "group/store_server.hpp"

namespace strata::group {

namespace {

using Clock = std::chrono::steady_clock;

// Listens only on the store's address: on all interfaces, anyone on the network could write into the store. Its name
// may be known later than this host starts.
std::unique_ptr<StoreServer> serve(const LaunchPlace& place, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  while (resolve_until(place.store_address, place.store_port, end).first.empty() && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ListeningSocket socket(place.store_address, place.store_port);
  return std::make_unique<StoreServer>(socket, place.run_name);
}

// Serves the store until this process ends: other ranks still need it for their last records, and a second engine in
// this process uses it again.
void serve_here(const LaunchPlace& place, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static auto* const servers = new std::map<std::pair<std::string, int>, std::unique_ptr<StoreServer>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<StoreServer>& server = (*servers)[{place.store_address, place.store_port}];
  if (!server) server = serve(place, timeout);
}

// [Note: Generations] A program may create several engines, one after the other or at once. Each has its own keys in
// the store, prefixed with its generation: the number of engines that this rank has created before. All ranks create
// engines in the same order.
std::string generation_of(const LaunchPlace& place) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, int> made;
  const std::lock_guard lock(mutex);
  return std::to_string(
      ++made[{place.run_name + " at " + place.store_address + ":" + std::to_string(place.store_port), place.rank}]);
}

}  // namespace

RunStore::RunStore(const LaunchPlace& place, std::chrono::milliseconds timeout)
    : interface_address_(place.interface_address), rank_(place.rank), size_(place.size) {
  if (size_ == 1) {
    board_ = std::make_shared<Board>(BoardPlace{.timeout = timeout});
    store_ = c10::make_intrusive<c10d::HashStore>();
  } else {
    connect(place, timeout);
  }
  const auto waits = [this](const std::string& where, const std::vector<int>& missing) {
    waiting_.emplace(*board_, Call{.group = "", .name = where}, missing);
  };
  const auto differ = [this](const std::string& cause) { return Board::settle(*store_, cause); };
  rendezvous_ =
      std::make_unique<Rendezvous>(store_, rank_, size_, Rendezvous::Hooks{waits, [this] { board_->check(); }, differ});
}

void RunStore::connect(const LaunchPlace& place, std::chrono::milliseconds timeout) {
  allow_most_open_files();
  if (rank_ == 0 && !place.store_served) serve_here(place, timeout);
  const auto client =
      c10::make_intrusive<StoreClient>(StorePlace{.host = place.store_address,
                                                  .port = place.store_port,
                                                  .run = place.run_name,
                                                  .server = place.store_served ? "the launcher" : "rank 0",
                                                  .timeout = timeout});
  if (interface_address_.empty()) interface_address_ = client->local_address();
  check_reachable(place, interface_address_);
  const std::string prefix = "strata/" + place.run_name + "/" + generation_of(place);
  // A wait on one connection must not hold up the board's.
  const auto boards = c10::static_intrusive_pointer_cast<StoreClient>(client->clone());
  board_ = std::make_shared<Board>(BoardPlace{.store = c10::make_intrusive<c10d::PrefixStore>(prefix, boards),
                                              .rank = rank_,
                                              .ranks = size_,
                                              .serves = rank_ == 0 && !place.store_served,
                                              .timeout = timeout,
                                              .hang_up = [boards] { boards->close(); }});
  store_ = c10::make_intrusive<c10d::PrefixStore>(prefix, client);
  board_->join();
}

RunStore::~RunStore() {
  board_->leave();
}

void RunStore::meet(const std::string& place, const std::vector<int>& members) {
  rendezvous_->meet(place, members);
  waiting_.reset();
}

void RunStore::agree(const std::string& what, const std::string& text, const std::string& remedy) {
  rendezvous_->agree(what, size_ > 1 ? "WORLD_SIZE = " + std::to_string(size_) + "; " + text : text, remedy);
  agreed();
}

void RunStore::agree(const std::string& what, const std::vector<Fact>& facts, const std::string& remedy) {
  rendezvous_->agree(what, written(facts), remedy, [&](int other_rank, const std::string& other) {
    return difference(rank_, facts, other_rank, read_facts(other));
  });
  agreed();
}

void RunStore::agreed() {
  waiting_.reset();
  board_->begun();
}

}  // namespace strata::group
