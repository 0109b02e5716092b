#include "group/rendezvous.hpp"

#include <strata/error.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "group/store_client.hpp"

using Catch::Matchers::Contains;
using namespace strata;

namespace {

// A store that counts its calls. A look for one key waits until it is there, so that how often ranks look does not
// depend on time.
class CountingStore final : public c10d::Store {
 public:
  explicit CountingStore(bool patient = true) : patient_(patient) {}
  c10::intrusive_ptr<Store> clone() override { throw Bug("not needed"); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const std::lock_guard lock(count());
    values_[key] = value;
    changed_.notify_all();
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::lock_guard lock(count());
    return values_.at(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const std::lock_guard lock(count());
    if (key == loses_) {
      loses_.clear();
      throw group::AddInDoubt("the connection was lost");
    }
    return counters_[key] += value;
  }
  bool check(const std::vector<std::string>& keys) override {
    std::unique_lock lock(count());
    const auto all = [&] {
      return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
    };
    if (patient_) changed_.wait(lock, all);
    return all();
  }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(count());
    std::vector<std::vector<std::uint8_t>> values;
    for (const std::string& key : keys) values.push_back(values_.at(key));
    return values;
  }
  bool deleteKey(const std::string&) override { throw Bug("not needed"); }
  std::int64_t getNumKeys() override { throw Bug("not needed"); }
  void wait(const std::vector<std::string>&) override { throw Bug("not needed"); }
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override { throw Bug("not needed"); }

  int calls() const { return calls_; }
  // The next add to `key` is lost on its way.
  void lose(const std::string& key) { loses_ = key; }

 private:
  std::mutex& count() {
    ++calls_;
    return mutex_;
  }
  bool patient_;
  std::atomic<int> calls_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::uint8_t>> values_;
  std::map<std::string, std::int64_t> counters_;
  std::string loses_;
};

std::vector<int> ranks_up_to(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Plays every rank in a thread of its own.
void play(int ranks, const std::function<void(int rank)>& part) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&part, rank] { part(rank); });
  for (std::thread& thread : threads) thread.join();
}

group::Rendezvous::Hooks nothing() {
  return {[](const std::string&, const std::vector<int>&) {}, [] {}, [](const std::string& cause) { return cause; }};
}

int calls_of_a_start(int ranks) {
  const auto store = c10::make_intrusive<CountingStore>();
  play(ranks, [&](int rank) {
    group::Rendezvous rendezvous(store, rank, ranks, nothing());
    rendezvous.agree("the configs", "seed = 1;", "");
    rendezvous.agree("the plugins", "12;", "");
    for (const char* group : {"connecting world", "connecting data", "connecting pipeline"})
      rendezvous.meet(group, ranks_up_to(ranks));
  });
  return store->calls();
}

}  // namespace

TEST_CASE("calls of the store grow with the number of ranks, and not faster") {
  const int few = calls_of_a_start(8), more = calls_of_a_start(16), most = calls_of_a_start(32);
  INFO(few << ", " << more << ", " << most);
  CHECK(more <= 2.3 * few);
  CHECK(most <= 2.3 * more);
  CHECK(most <= 32 * 20);
}

TEST_CASE("a rank that differs is named, by itself and by rank 0") {
  const auto store = c10::make_intrusive<CountingStore>();
  std::vector<std::string> said(4);
  play(4, [&](int rank) {
    group::Rendezvous rendezvous(store, rank, 4, nothing());
    said[static_cast<std::size_t>(rank)] = error_of<EnvironmentError>(
        [&] { rendezvous.agree("the configs", rank == 2 ? "a = 1; b = 3;" : "a = 1; b = 2;", "do this"); });
  });
  CHECK_THAT(said[0], Contains("rank 0 has b = 2, rank 2 has b = 3; do this"));
  CHECK(said[2] == said[0]);
  CHECK(said[1] == "");
  CHECK(said[3] == "");
}

TEST_CASE("a lost count delays no rank") {
  const auto store = c10::make_intrusive<CountingStore>(/*patient=*/false);
  store->lose("meet/place/count of 3");
  play(3, [&](int rank) { group::Rendezvous(store, rank, 3, nothing()).meet("place", {0, 1, 2}); });
}

TEST_CASE("a long wait names the missing, and can be ended") {
  const auto store = c10::make_intrusive<CountingStore>(/*patient=*/false);
  std::vector<int> missing;
  const auto end = [&] {
    if (!missing.empty()) throw EnvironmentError("ended");
  };
  group::Rendezvous rendezvous(store, 1, 3,
                               {[&](const std::string&, const std::vector<int>& found) { missing = found; }, end});
  CHECK_THROWS_WITH(rendezvous.meet("place", {0, 1, 2}), "ended");
  CHECK(missing == std::vector<int>{0, 2});
}

TEST_CASE("ranks of another WORLD_SIZE are not counted") {
  const auto store = c10::make_intrusive<CountingStore>(/*patient=*/false);
  std::vector<std::string> said(2);
  play(2, [&](int rank) {
    group::Rendezvous rendezvous(store, rank, rank == 0 ? 4 : 2, nothing());
    said[static_cast<std::size_t>(rank)] = error_of<EnvironmentError>(
        [&] { rendezvous.agree("the configs", rank == 0 ? "WORLD_SIZE = 4;" : "WORLD_SIZE = 2;", "do this"); });
  });
  CHECK_THAT(said[0], Contains("rank 0 has WORLD_SIZE = 4, rank 1 has WORLD_SIZE = 2"));
  CHECK(said[1] == said[0]);
}
