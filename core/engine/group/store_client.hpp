// Client of the run's store: c10d's interface over connections with deadlines.
#pragma once
#include <c10/util/intrusive_ptr.h>
#include <strata/error.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "group/store_connection.hpp"

namespace strata::group {

// Error of an add() whose connection was lost before the answer: it was carried out once, or not at all.
class AddInDoubt : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

struct StorePlace {
  std::string host;
  int port = 0;
  std::string run;                      // name of the run, see StoreConnection
  std::string server;                   // server's name for messages: "rank 0", "the launcher"
  std::chrono::milliseconds timeout{};  // limit of the store's silence
};

// [Note: A store that is silent] Each request is retried, over a new connection, until the store has been silent for
// the timeout: a shorter outage of the link has no effect. The store is lost earlier if nothing listens at its port any
// more, because its process has ended, and at once if another program answers. A lost store stays lost.
class StoreClient final : public c10d::Store {
 public:
  // Connects. Unlike later requests, waits for a listener. Throws EnvironmentError.
  explicit StoreClient(StorePlace place);

  // Returns another client of the same store, not yet connected.
  c10::intrusive_ptr<Store> clone() override;
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& wanted) override;
  // Returns a value, after waiting for its key as wait() does.
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  // Returns values, after waiting for their keys as wait() does.
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

  // Returns the local address of the connection to the store.
  std::string local_address();
  // Ends the current request, and every later one, with an error. Any thread may call it.
  void close() { closed_ = true; }

 private:
  using Clock = StoreConnection::Clock;
  using Read = std::function<void(StoreConnection&, Clock::time_point deadline)>;
  struct NotYetConnected {};
  StoreClient(StorePlace place, NotYetConnected) : Store(place.timeout), place_(std::move(place)) {}

  void request(const StoreRequest& request, const Read& read, bool once = false);
  void take(const StoreProblem& problem, Clock::time_point attempted);
  void connect_at_start();

  StorePlace place_;
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::unique_ptr<StoreConnection> connection_;
  std::optional<Clock::time_point> silent_since_;   // begin of the time without an answer to any attempt
  std::optional<Clock::time_point> refused_since_;  // begin of the time in which all attempts were refused
  std::optional<std::string> lost_;
};

}  // namespace strata::group
