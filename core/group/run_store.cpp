#include "group/run_store.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "group/address.hpp"
#include "plugin_host/machine_error.hpp"

namespace strata::runtime {

namespace {

std::string seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

c10d::TCPStoreOptions store_options(std::uint16_t port, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return options;
}

// Listens only on `address`: on all interfaces, anyone on the network could write into the store.
c10::intrusive_ptr<c10d::TCPStore> serve(const std::string& address, int port, std::chrono::milliseconds timeout) {
  launch::ListeningSocket socket(address, port);
  c10d::TCPStoreOptions options = store_options(static_cast<std::uint16_t>(socket.port()), timeout);
  options.isServer = true;
  options.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

// The store that this process serves until it ends: other ranks still need it for their last records, and a second
// engine in this process uses it again.
c10::intrusive_ptr<c10d::TCPStore> served_here(const std::string& address, int port,
                                               std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static auto* const stores = new std::map<std::pair<std::string, int>, c10::intrusive_ptr<c10d::TCPStore>>;
  const std::lock_guard lock(mutex);
  c10::intrusive_ptr<c10d::TCPStore>& store = (*stores)[{address, port}];
  if (!store) store = serve(address, port, timeout);
  return store;
}

// [Note: Generations] A program may create several engines, one after the other or at once. Each has its own keys in
// the store, prefixed with its generation: the number of engines that this rank has created before. All ranks create
// engines in the same order.
std::string generation_of(const launch::LaunchPlace& place) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, int> made;
  const std::lock_guard lock(mutex);
  return std::to_string(
      ++made[{place.run_name + " at " + place.store_address + ":" + std::to_string(place.store_port), place.rank}]);
}

// The first part of `text` that differs from `other`'s; parts end with semicolons.
std::string first_different_part(const std::string& text, const std::string& other) {
  const auto [end, others_end] = std::ranges::mismatch(text, other);
  const auto at = static_cast<std::size_t>(end - text.begin());
  const std::size_t before = at == 0 ? std::string::npos : text.rfind(';', at - 1);
  std::size_t begin = before == std::string::npos ? 0 : before + 1;
  if (begin < text.size() && text[begin] == ' ') ++begin;
  return begin < text.size() ? text.substr(begin, text.find(';', begin) - begin) : "no more";
}

}  // namespace

StoreServer::StoreServer() {
  const auto store = serve("127.0.0.1", 0, std::chrono::seconds(30));
  port_ = store->getPort();
  store_ = store;
}
StoreServer::~StoreServer() = default;

RunStore::RunStore(const launch::LaunchPlace& place, std::chrono::milliseconds timeout)
    : rank_(place.rank), size_(place.size) {
  const std::string where = place.store_address + ":" + std::to_string(place.store_port);
  try {
    c10::intrusive_ptr<c10d::Store> store;
    if (size_ == 1)
      store = c10::make_intrusive<c10d::HashStore>();
    else if (rank_ == 0 && !place.store_served)
      store = served_here(place.store_address, place.store_port, timeout);
    else if (launch::answers_within(place.store_address, place.store_port, timeout))
      store = c10::make_intrusive<c10d::TCPStore>(place.store_address,
                                                  store_options(static_cast<std::uint16_t>(place.store_port), timeout));
    else
      throw EnvironmentError("rank " + std::to_string(rank_) + " found no server of the run's store at " + where +
                             " within " + seconds(timeout) + "; " + (place.store_served ? "the launcher" : "rank 0") +
                             " should serve it");
    const std::string prefix = "strata/" + place.run_name + "/" + generation_of(place);
    // A blocking wait on one connection would block the board's connection too.
    board_ =
        std::make_shared<Board>(size_ == 1 ? nullptr : c10::make_intrusive<c10d::PrefixStore>(prefix, store->clone()),
                                rank_, size_, rank_ == 0 && !place.store_served, timeout);
    store_ = c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
    if (size_ > 1) board_->join();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError("rank " + std::to_string(rank_) + " could not reach the run's store at " + where +
                           " within " + seconds(timeout) + ": " + plugin_host::first_line(error));
  }
}

RunStore::~RunStore() {
  board_->leave();
}

void RunStore::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, value);
  } catch (const std::exception& error) {
    throw EnvironmentError("the run's store is lost (setting '" + key + "'): " + plugin_host::first_line(error));
  }
}

// Polls, because c10d's blocking wait would end after a fixed time. `place` and `members` tell the other ranks what
// this rank waits for.
void RunStore::wait_for(const std::string& place, const std::vector<int>& members,
                        const std::function<std::string(int)>& key_of) {
  std::chrono::milliseconds pause{1};
  std::vector<int> missing = members;
  try {
    const auto is_there = [&](int member) { return store_->check({key_of(member)}); };
    std::optional<Board::Waiting> waiting;
    while (true) {
      const std::size_t came = std::erase_if(missing, is_there);
      if (missing.empty()) return;
      if (!waiting || came > 0) waiting.emplace(*board_, Call{.group = "", .name = place}, missing);
      std::this_thread::sleep_for(pause);
      board_->check();
      pause = std::min(2 * pause, std::chrono::milliseconds{64});
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError("the run's store is lost (" + place + "): " + plugin_host::first_line(error));
  }
}

void RunStore::meet(const std::string& place, const std::vector<int>& members) {
  const auto key = [&](int rank) { return "meet/" + place + "/" + std::to_string(rank); };
  set(key(rank_), "here");
  wait_for(place, members, key);
}

void RunStore::agree(const std::string& what, const std::string& text, const std::string& remedy) {
  compare(what, text, remedy, [&](int other_rank, const std::string& other) {
    if (other == text) return std::string();
    return "rank " + std::to_string(rank_) + " has " + first_different_part(text, other) + ", rank " +
           std::to_string(other_rank) + " has " + first_different_part(other, text);
  });
}

void RunStore::agree(const std::string& what, const std::vector<Fact>& facts, const std::string& remedy) {
  compare(what, written(facts), remedy, [&](int other_rank, const std::string& other) {
    return difference(rank_, facts, other_rank, read_facts(other));
  });
}

void RunStore::compare(const std::string& what, const std::string& text, const std::string& remedy,
                       const std::function<std::string(int other_rank, const std::string& other)>& find_difference) {
  const auto key = [&](int rank) { return "agree/" + what + "/" + std::to_string(rank); };
  set(key(rank_), text);
  std::vector<int> others{0};
  if (rank_ == 0) {
    others.resize(static_cast<std::size_t>(size_ - 1));
    std::iota(others.begin(), others.end(), 1);
  }
  wait_for("comparing " + what, others, key);
  for (const int rank : others)
    if (const std::string found = find_difference(rank, store_->get_to_str(key(rank))); !found.empty())
      throw EnvironmentError(what + " differ between ranks: " + found + "; " + remedy);
}

}  // namespace strata::runtime
